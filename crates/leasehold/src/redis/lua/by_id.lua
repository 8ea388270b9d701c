-- KEYS  index of the lock id. Returns {now, record or nil}, which may be the record of another lock id.

local name = call('GET', KEYS[1])
return {now, name and call('GET', name)}
