-- KEYS  index of the lock id. Returns {now, record or nil}, which may be the record of another lock id.

local name = call('GET', KEYS[1])
local raw = name and call('GET', name)
if name and not raw and ARGV[1] == 'asking' then
  return redis.error_reply('TRYAGAIN the lock is still on its way to this node')
end
return {now, raw}
