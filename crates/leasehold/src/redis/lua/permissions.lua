-- KEYS  a name of our own. ARGV  a channel of our own, a pattern of our names.
-- Tries every command that the other scripts use. Returns what the server said to those that failed, after their names.

local failed = {}
local function try(...)
  local answer = redis.pcall(...)
  -- What is tried on a value of another type is refused for that, if it is not refused before.
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'WRONGTYPE', 1, true) then
    failed[#failed + 1] = (select(1, ...))
    failed[#failed + 1] = answer.err
  end
end

try('TIME')
try('GET', KEYS[1])
try('SET', KEYS[1], '0', 'PX', 1000)
try('MGET', KEYS[1])
try('EXISTS', KEYS[1])
try('SADD', KEYS[1], '')
try('SREM', KEYS[1], '')
try('SRANDMEMBER', KEYS[1], 1)
try('SSCAN', KEYS[1], '0')
try('ZADD', KEYS[1], 1, '')
try('ZREM', KEYS[1], '')
try('ZRANGE', KEYS[1], 0, 0)
try('ZREVRANGE', KEYS[1], 0, 0)
try('ZRANGEBYSCORE', KEYS[1], 0, 0)
try('ZCARD', KEYS[1])
try('ZCOUNT', KEYS[1], 0, 0)
try('ZSCORE', KEYS[1], '')
try('ZRANK', KEYS[1], '')
try('SETBIT', KEYS[1], 0, 0)
try('BITPOS', KEYS[1], 0)
try('PEXPIREAT', KEYS[1], 1)
try('DEL', KEYS[1])
try('SCAN', '0', 'MATCH', ARGV[2], 'COUNT', 1)
try('INFO', 'keyspace')
try('PUBLISH', ARGV[1], '')
try('PUBSUB', 'NUMSUB', ARGV[1])
return failed
