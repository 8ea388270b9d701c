-- KEYS  a name of our own. ARGV  a channel of our own, a pattern of our names.
-- Tries every command that the other scripts use. Returns what the server said to those that failed, after their names.

local failed = {}
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    failed[#failed + 1] = (select(1, ...))
    failed[#failed + 1] = answer.err
  end
end

try('TIME')
try('GET', KEYS[1])
try('SET', KEYS[1], '0', 'PX', 1000)
try('MGET', KEYS[1])
try('DEL', KEYS[1])
try('SCAN', '0', 'MATCH', ARGV[2], 'COUNT', 1)
try('PUBLISH', ARGV[1], '')
try('PUBSUB', 'NUMSUB', ARGV[1])
return failed
