-- Tells those who wait for a lock that it is free, and how many they are: see herd.rs. Of those who listen to another node of
-- a cluster this one knows nothing. Whoever may not ask or publish may still release.

local function tell_freed(name)
  local channel = name .. '{{freed_suffix}}'
  local waiting = redis.pcall('PUBSUB', 'NUMSUB', channel)
  if waiting[2] ~= 0 or string.find(name, '{', 1, true) then
    redis.pcall('PUBLISH', channel, waiting[2] or '')
  end
end
