-- Tells those who wait for a lock that it is free, and how many they are: see herd.rs. Whoever may not publish may still
-- release.

local function tell_freed(name)
  local channel = name .. '{{freed_suffix}}'
  local waiting = redis.pcall('PUBSUB', 'NUMSUB', channel)
  redis.pcall('PUBLISH', channel, waiting[2] or '')
end
