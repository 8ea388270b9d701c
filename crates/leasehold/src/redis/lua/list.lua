-- KEYS  any name with our prefix. ARGV  cursor, pattern, count, what indexes of lock ids start with if the pattern is theirs
-- or '', how the server calls this database, and names left over from the page before.
-- Returns {now, next cursor, {name, record, name, record, ...}}: whatever looks like a record among the names that one
-- step of SCAN yields or leads to, or among those given.

local MOST = 1000

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

-- Every lock has an expiry: where nothing has one, nothing is held. Whoever may not ask has to look.
local function nothing_is_held()
  local keyspace = redis.pcall('INFO', 'keyspace')
  return type(keyspace) == 'string' and string.find(keyspace, ARGV[5] .. 'keys=%d+,expires=0%D')
end

local cursor, names, ids = ARGV[1], {}, {}
if #ARGV > 5 then
  for i = 6, #ARGV do
    names[i - 5] = ARGV[i]
  end
elseif ARGV[4] == '' or cursor ~= '0' or not nothing_is_held() then
  local step = call('SCAN', cursor, 'MATCH', ARGV[2], 'COUNT', ARGV[3])
  cursor, names = step[1], step[2]
  if ARGV[4] ~= '' then
    local indexes, start = names, string.sub(ARGV[4], 1, -4)
    local leads_to = get(indexes)
    names = {}
    for i, index in ipairs(indexes) do
      local name = leads_to[i]
      if name and string.sub(name, 1, #start) == start then
        names[#names + 1] = name
        ids[#names] = string.sub(index, #ARGV[4] + 1)
      end
    end
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
return {now, cursor, found}
