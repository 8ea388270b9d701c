-- Finds the lock of a lock id, for release and extend. KEYS  index of the lock id. ARGV  lock id, ...
-- Below, `raw` is set only if the lock is held with this id, and `name` is its name; `absence` says why it is not:
-- 0 there is no such lock, -1 its time is over.

local absence = 0
local id, expires, rest
local name = call('GET', KEYS[1])
local raw = name and call('GET', name)
if name and not raw and ARGV[#ARGV] == 'asking' then
  return redis.error_reply('TRYAGAIN the lock is still on its way to this node')
end
if raw then
  id, expires, rest = read(raw)
  if id ~= ARGV[1] then
    raw = false
  elseif not live(expires) then
    raw = false
    absence = -1
  end
end
