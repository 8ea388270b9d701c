-- Tells those who watch of a grant. `key` and `rest` are parts of a record, as JSON. Nobody listens as a rule, except perhaps
-- to another node of a cluster, of which this one cannot tell. Whoever may not ask or publish may still acquire.

local function tell_granted(channel, digits, key, rest)
  local listening = redis.pcall('PUBSUB', 'NUMSUB', channel)
  if listening[2] ~= 0 or string.find(channel, '{', 1, true) then
    local record = cjson.decode('{"key":' .. key .. rest)
    redis.pcall('PUBLISH', channel, '{{granted}}' .. digits .. (record.holder or '') .. '\n' .. record.key)
  end
end
