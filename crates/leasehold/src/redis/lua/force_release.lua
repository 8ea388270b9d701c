-- KEYS  lock. ARGV  what the indexes of lock ids start with, channel of taken locks, set of held locks. Returns the record
-- that was ended, if any.

local raw = call('GET', KEYS[1])
if not raw then
  return false
end
local id, expires = read(raw)
if not id or contradicts_itself(raw) then
  return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
end
if not live(expires) then
  return false
end
-- What could not be told of afterwards is not ended.
local ok, record = pcall(cjson.decode, raw)
if not ok or #id ~= {{lock_id_length}} or string.find(id, '[^%w_-]')
  or type(record.key) ~= 'string' or record.key == '' or #record.key > {{longest_key}} or string.find(record.key, '%z')
  or type(record.acquiredAtMs) ~= 'number' or type(record.fence) ~= 'string'
  or #record.fence ~= {{fence_digits}} or string.find(record.fence, '%D') or record.fence > '{{highest_fence}}' then
  return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
end
call('DEL', KEYS[1], ARGV[1] .. id)
redis.pcall('SREM', ARGV[3], KEYS[1])
tell_freed(KEYS[1])
redis.pcall('PUBLISH', ARGV[2], '{{force_released}}' .. record.fence .. record.key)
return raw
