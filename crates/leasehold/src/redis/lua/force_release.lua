-- KEYS  lock. ARGV  what the indexes of lock ids start with, channel of taken locks, fence of the only grant
-- that is to end or ''. Returns what was ended: 'record' or 'grant' and the same as JSON, of one after the other.

local held = look(KEYS[1])
local first = find_first(KEYS[1])

-- What could not be told of afterwards is not ended.
local function can_be_told(record)
  return type(record.lockId) == 'string' and #record.lockId == {{lock_id_length}} and not string.find(record.lockId, '[^%w_-]')
    and type(record.key) == 'string' and record.key ~= '' and #record.key <= {{longest_key}} and not string.find(record.key, '%z')
    and type(record.acquiredAtMs) == 'number' and type(record.fence) == 'string'
    and #record.fence == {{fence_digits}} and not string.find(record.fence, '%D') and record.fence <= '{{highest_fence}}'
end

-- The grants to end, as {member, JSON, fence and key}.
local found = {}
local function find(member, raw)
  local ok, record = pcall(cjson.decode, raw)
  if not ok or not can_be_told(record) then
    return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
  end
  if ARGV[3] == '' or record.fence == ARGV[3] then
    found[#found + 1] = { member, raw, record.fence .. record.key }
  end
end

if held.broken or held.class == 'e' and contradicts_itself(held.raw) then
  return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
elseif held.class == 'e' then
  local problem = find('', held.raw)
  if problem then
    return problem
  end
  -- Refused by a node of a cluster that has only a part of it.
  call('EXISTS', KEYS[1], INDEXES .. held.id)
elseif held.class then
  call('EXISTS', unpack({KEYS[1] .. GRANTS, KEYS[1] .. ENDS, held.class == 'p' and KEYS[1] .. SLOTS or nil}))
  local from, to = ARGV[3] == '' and '-inf' or ARGV[3], ARGV[3] == '' and '+inf' or ARGV[3]
  for _, member in ipairs(call('ZRANGEBYSCORE', KEYS[1] .. GRANTS, from, to)) do
    local raw = call('GET', INDEXES .. string.sub(member, 6))
    if not raw and ARGV[#ARGV] == 'asking' then
      return redis.error_reply('TRYAGAIN the lock is still on its way to this node')
    end
    local problem = raw and find(member, raw)
    if problem then
      return problem
    end
  end
end

local answer, several = {}, held.class ~= 'e'
for i, grant in ipairs(found) do
  answer[2 * i - 1], answer[2 * i] = several and 'grant' or 'record', grant[2]
  if several then
    end_grant(held, grant[1])
  else
    call('DEL', INDEXES .. held.id)
    redis.pcall('SREM', HELD, KEYS[1])
  end
end
if held.class and (ARGV[3] == '' or not several and #found > 0) then
  -- Also of those of whom nothing else is left.
  call('DEL', KEYS[1] .. GRANTS, KEYS[1] .. ENDS, KEYS[1] .. SLOTS)
  held.class, held.count, held.ended = nil, 0, true
elseif several and held.count > 0 and #found > 0 then
  cover(held)
end
if not settle(held, first) and #found > 0 then
  tell_freed(KEYS[1])
end
for _, grant in ipairs(found) do
  redis.pcall('PUBLISH', ARGV[2], '{{force_released}}' .. grant[3])
end
return answer
