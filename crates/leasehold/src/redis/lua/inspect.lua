-- KEYS  lock. ARGV  what indexes of lock ids start with. Returns {now, 'record' or 'grant' for the holders, the holders,
-- those in line}, all as JSON. Never writes.

local MOST = 1000

-- What the indexes of members of a sorted set have, which `read_entry` reads, up to `most` of them.
local function entries(set, skip, most, read_entry)
  local found, from = {}, 0
  repeat
    local members = call('ZRANGE', set, from, from + MOST - 1)
    local indexes = {}
    for i, member in ipairs(members) do
      indexes[i] = ARGV[1] .. string.sub(member, skip)
    end
    for i, value in ipairs(#members > 0 and call('MGET', unpack(indexes)) or {}) do
      local entry = value and read_entry(value, string.sub(members[i], skip))
      if entry and entry.name == KEYS[1] and #found < most then
        found[#found + 1] = value
      end
    end
    from = from + #members
  until #members < MOST or #found >= most
  return found
end

local raw = call('GET', KEYS[1])
local class, expires = read_placeholder(raw or '')
local holders = raw and not class and {raw} or {}
if class and class ~= '{{called}}' and live(expires) then
  holders = entries(KEYS[1] .. GRANTS, 6, math.huge, read_grant)
end
return {now, class and 'grant' or 'record', holders, entries(KEYS[1] .. LINE, 1, MOST, read_place)}
