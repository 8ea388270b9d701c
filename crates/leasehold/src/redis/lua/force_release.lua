-- KEYS  lock. ARGV  what the indexes of lock ids start with, channel of taken locks. Returns the record that was ended, if any.

local raw = call('GET', KEYS[1])
if not raw then
  return false
end
local id, expires = read(raw)
if not id then
  return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
end
if not live(expires) then
  return false
end
-- What could not be told of afterwards is not ended.
local record = cjson.decode(raw)
if type(record.key) ~= 'string' or type(record.acquiredAtMs) ~= 'number' or type(record.fence) ~= 'string'
  or #record.fence ~= 15 or string.find(record.fence, '%D') then
  return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
end
call('DEL', KEYS[1], ARGV[1] .. id)
redis.pcall('PUBLISH', KEYS[1] .. ':freed', '')
redis.pcall('PUBLISH', ARGV[2], 'R' .. id)
return raw
