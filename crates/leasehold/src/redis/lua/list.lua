-- KEYS  any name with our prefix. ARGV  cursor, whether it goes through the set of held locks or '', pattern of the names of
-- locks, count, what indexes of lock ids start with, pattern of indexes if they are to lead to the locks or '', how the
-- server calls this database, set of held locks, and names left over from the page before.
-- Returns {now, 1 if the cursor goes through the set of held locks, next cursor, {name, record, name, record, ...}}:
-- whatever looks like a record among the names that one step yields or leads to, or among those given.

local HELD = ARGV[8]
local MOST = 1000
local MOST_HELD = 10000

local function get(names)
  local values = {}
  for first = 1, #names, MOST do
    local last = math.min(first + MOST - 1, #names)
    for i, value in ipairs(call('MGET', unpack(names, first, last))) do
      values[first + i - 1] = value
    end
  end
  return values
end

-- How many locks the set of held ones has; none if it has too many to look at in one go. Those that have expired are
-- removed from it.
local function count_held()
  local names = call('SRANDMEMBER', HELD, MOST_HELD + 1)
  local count = 0
  for first = 1, #names, MOST do
    local last = math.min(first + MOST - 1, #names)
    local live = call('EXISTS', unpack(names, first, last))
    count = count + live
    if live < last - first + 1 then
      for i = first, last do
        if call('EXISTS', names[i]) == 0 then
          call('SREM', HELD, names[i])
        end
      end
    end
  end
  return #names <= MOST_HELD and count
end

-- Whether the set of held locks has all of them: other libraries do not know of it. A lock is two names that expire, its
-- record and its index, so if the database has just those that belong to what the set has, there is no other lock.
-- Whoever may not ask has to look.
local function all_are_known()
  local ok, count = pcall(count_held)
  local keyspace = redis.pcall('INFO', 'keyspace')
  local expiring = type(keyspace) == 'string' and string.match(keyspace, ARGV[7] .. 'keys=%d+,expires=(%d+)')
  return ok and count and expiring and tonumber(expiring) == 2 * count
end

-- Follows indexes to the names of their locks.
local function follow(indexes)
  local start = string.sub(ARGV[5], 1, -4)
  local names, ids = {}, {}
  for i, name in ipairs(get(indexes)) do
    if name and string.sub(name, 1, #start) == start then
      names[#names + 1] = name
      ids[#names] = string.sub(indexes[i], #ARGV[5] + 1)
    end
  end
  return names, ids
end

local cursor, in_held, names, ids = ARGV[1], ARGV[2] ~= '', {}, {}
if #ARGV > 8 then
  for i = 9, #ARGV do
    names[i - 8] = ARGV[i]
  end
else
  if cursor == '0' then
    in_held = all_are_known()
  end
  local step
  if in_held then
    step = call('SSCAN', HELD, cursor, 'MATCH', ARGV[3], 'COUNT', ARGV[4])
    cursor, names = step[1], step[2]
  elseif ARGV[6] == '' then
    step = call('SCAN', cursor, 'MATCH', ARGV[3], 'COUNT', ARGV[4])
    cursor, names = step[1], step[2]
  else
    step = call('SCAN', cursor, 'MATCH', ARGV[6], 'COUNT', ARGV[4])
    cursor, names, ids = step[1], follow(step[2])
  end
end

local found = {}
for i, raw in ipairs(get(names)) do
  -- The index of a stolen lock leads to that of the thief.
  if raw and string.find(raw, '^%s*{') and (not ids[i] or read(raw) == ids[i]) then
    found[#found + 1] = names[i]
    found[#found + 1] = raw
  end
end
return {now, in_held and 1 or 0, cursor, found}
