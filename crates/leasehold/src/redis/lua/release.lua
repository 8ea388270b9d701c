-- After record.lua and owned.lua. Returns 1 if the lock was released, or the absence.

if not raw then
  return absence
end
call('DEL', name, KEYS[1])
-- Whoever may not publish may still release.
redis.pcall('PUBLISH', name .. '{{freed_suffix}}', '')
return 1
