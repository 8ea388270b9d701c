-- KEYS  any name with our prefix. ARGV  cursor, whether it goes through the set of held locks or '', pattern of the names of
-- locks, count, what indexes of lock ids start with, pattern of indexes if they are to lead to the locks or '', how the
-- server calls this database, and names left over from the page before. Behind the name of a lock that several hold there may
-- be a NUL, and '=' and the fence of the only one wanted, or '>' and a fence beyond which all are.
-- Returns {now, 1 if the cursor goes through the set of held locks, next cursor, {name, 'record', 'grant' or, if they come
-- in the order of their fences, 'holder', the same as JSON, ...}, {name, number of those who wait, ...}, names that have
-- more}: whatever looks like a lock among the names that one step yields or leads to, or among those given.

local HELD, BUSY, SLOTS = ARGV[5] .. '{{held}}', ARGV[5] .. '{{busy}}', '{{slots}}'
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

-- How many names belong to locks that are no plain ones or have a line, and the names of those that several hold.
local function count_busy()
  local names = call('SRANDMEMBER', BUSY, MOST + 1)
  local count, shared = 0, {}
  for _, name in ipairs(names) do
    local class = read_placeholder(call('GET', name) or '')
    local beside = call('EXISTS', name .. GRANTS, name .. ENDS, name .. SLOTS, name .. LINE, name .. LEASES)
    if beside > 0 then
      beside = beside + call('ZCOUNT', name .. ENDS, '(' .. now - TOLERANCE, '+inf') + call('ZCOUNT', name .. LEASES, '(' .. now, '+inf')
    elseif not class then
      call('SREM', BUSY, name)
    end
    count = count + beside + (class and 1 or 0)
    if class then
      -- It was a plain one, and nobody released it.
      call('SREM', HELD, name)
    end
    if class and class ~= '{{called}}' then
      shared[#shared + 1] = name
    end
  end
  return #names <= MOST and count, shared
end

-- Whether the sets have all locks: other libraries do not know of them. A plain lock is two names that expire, its record
-- and its index, so if the database has just those that belong to what the sets have, there is no other lock. Whoever may
-- not ask has to look. Returns the names of the locks that several hold.
local function all_are_known()
  local ok, busy, shared = pcall(count_busy)
  local also_ok, held = pcall(count_held)
  local keyspace = redis.pcall('INFO', 'keyspace')
  local expiring = type(keyspace) == 'string' and string.match(keyspace, ARGV[7] .. 'keys=%d+,expires=(%d+)')
  return ok and also_ok and held and busy and expiring and tonumber(expiring) == 2 * held + busy and shared
end

local found, left = {}, {}
local function add(name, form, raw)
  found[#found + 1], found[#found + 2], found[#found + 3] = name, form, raw
end

-- Follows indexes to the names of their locks. What is no plain lock is in the index itself.
local function follow(indexes)
  local start = string.sub(ARGV[5], 1, -4)
  local names, ids = {}, {}
  for i, value in ipairs(get(indexes)) do
    local id = string.sub(indexes[i], #ARGV[5] + 1)
    if value and is_entry(value, id) then
      local grant = read_grant(value, id)
      if grant and read_placeholder(call('GET', grant.name) or '') == grant.class
        and call('ZSCORE', grant.name .. ENDS, grant.member) then
        add(grant.name, 'grant', value)
      end
    elseif value and string.sub(value, 1, #start) == start then
      names[#names + 1] = value
      ids[#names] = id
    end
  end
  return names, ids
end

-- Those who hold a lock together, or the one with a fence, or those beyond one, as many as there may be in a step.
local function add_holders(name, which, fence)
  local from = which == '=' and fence or which == '>' and '(' .. fence or '-inf'
  local most = tonumber(ARGV[4])
  if #found / 3 >= most and which ~= '=' then
    left[#left + 1] = which == '>' and name .. '\0>' .. fence or name
    return
  end
  local members = call('ZRANGEBYSCORE', name .. GRANTS, from, which == '=' and fence or '+inf', 'LIMIT', 0, most)
  local indexes = {}
  for i, member in ipairs(members) do
    indexes[i] = ARGV[5] .. string.sub(member, 6)
  end
  for i, value in ipairs(get(indexes)) do
    if value and read_grant(value, string.sub(members[i], 6)) then
      add(name, which == '=' and 'grant' or 'holder', value)
    end
  end
  if #members == most and which ~= '=' then
    left[#left + 1] = name .. '\0>' .. call('ZSCORE', name .. GRANTS, members[most])
  end
end

-- How many wait for the locks that were found. There is no line as a rule, and then it costs next to nothing.
local function count_waiting()
  local busy, waiting = redis.pcall('SRANDMEMBER', BUSY, MOST + 1), {}
  local is_busy, is_told = {}, {}
  for _, name in ipairs(busy) do
    is_busy[name] = true
  end
  for i = 1, #found, 3 do
    local name = found[i]
    if not is_told[name] and (is_busy[name] or #busy > MOST) then
      is_told[name] = true
      local count = call('ZCOUNT', name .. LEASES, '(' .. now, '+inf')
      if count > 0 then
        waiting[#waiting + 1], waiting[#waiting + 2] = name, count
      end
    end
  end
  return waiting
end

local cursor, in_held, names, ids, only = ARGV[1], ARGV[2] ~= '', {}, {}, {}
if #ARGV > 7 then
  for i = 8, #ARGV do
    local name, which, fence = string.match(ARGV[i], '^(%Z*)%z?([=>]?)(%d*)$')
    names[i - 7], only[i - 7] = name or '', {which, fence}
  end
else
  local shared
  if cursor == '0' then
    shared = all_are_known()
    in_held = shared and true
  end
  local step
  if in_held then
    step = call('SSCAN', HELD, cursor, 'MATCH', ARGV[3], 'COUNT', ARGV[4])
    cursor, names = step[1], step[2]
    for _, name in ipairs(shared or {}) do
      names[#names + 1] = name
    end
  elseif ARGV[6] == '' then
    step = call('SCAN', cursor, 'MATCH', ARGV[3], 'COUNT', ARGV[4])
    cursor, names = step[1], step[2]
  else
    step = call('SCAN', cursor, 'MATCH', ARGV[6], 'COUNT', ARGV[4])
    cursor, names, ids = step[1], follow(step[2])
  end
end

for i, raw in ipairs(get(names)) do
  local class, expires = read_placeholder(raw or '')
  if class then
    if class ~= '{{called}}' and live(expires) and not ids[i] then
      add_holders(names[i], unpack(only[i] or {}))
    end
  -- The index of a stolen lock leads to that of the thief.
  elseif raw and string.find(raw, '^%s*{') and (not ids[i] or read(raw) == ids[i]) then
    add(names[i], 'record', raw)
  end
end
return {now, in_held and 1 or 0, cursor, found, count_waiting(), left}
