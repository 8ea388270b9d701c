-- KEYS  any name with our prefix. ARGV  cursor, pattern, count, and names left over from the page before.
-- Returns {now, next cursor, {name, record, name, record, ...}}: whatever looks like a record among the names that one
-- step of SCAN yields, or among those given.

local MOST = 1000

local names = {}
local cursor = ARGV[1]
if #ARGV > 3 then
  for i = 4, #ARGV do
    names[#names + 1] = ARGV[i]
  end
else
  local step = call('SCAN', cursor, 'MATCH', ARGV[2], 'COUNT', ARGV[3])
  cursor = step[1]
  names = step[2]
end

local found = {}
for first = 1, #names, MOST do
  local last = math.min(first + MOST - 1, #names)
  local values = call('MGET', unpack(names, first, last))
  for i = 1, last - first + 1 do
    local raw = values[i]
    if raw and string.find(raw, '^%s*{') then
      found[#found + 1] = names[first + i - 1]
      found[#found + 1] = raw
    end
  end
end
return {now, cursor, found}
