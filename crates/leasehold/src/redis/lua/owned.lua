-- Finds the lock of a lock id, for release and extend. KEYS  index of the lock id. ARGV  lock id, ...
-- `name` and `raw` are set below only if the lock is held with this id; `absence` says why not:
-- 0 there is no such lock, -1 its time is over.

local absence = 0
local name = redis.call('GET', KEYS[1])
local raw = name and redis.call('GET', name)
if raw then
  local id, expires = read(raw)
  if id ~= ARGV[1] then
    raw = false
  elseif not live(expires) then
    raw = false
    absence = -1
  end
end
