-- Tells those who watch of a grant. Nobody listens as a rule, except perhaps to another node of a cluster, of which this one
-- cannot tell. Whoever may not ask or publish may still acquire.

local function tell_granted(channel, elsewhere, fence, to)
  local listening = redis.pcall('PUBSUB', 'NUMSUB', channel)
  if elsewhere ~= '' or listening[2] ~= 0 then
    redis.pcall('PUBLISH', channel, string.format('{{granted}}%0{{fence_digits}}d', fence) .. to)
  end
end
