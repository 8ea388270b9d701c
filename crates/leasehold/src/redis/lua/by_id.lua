-- KEYS  index of the lock id. Returns {now, record or nil}, which may be the record of another lock id.

local name = redis.call('GET', KEYS[1])
return {now, name and redis.call('GET', name)}
