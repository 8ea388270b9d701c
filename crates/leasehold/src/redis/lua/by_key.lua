-- KEYS  lock. ARGV  what indexes of lock ids start with. Returns {now, 'record' or 'grant' for what follows, the oldest
-- lock or nil}. Never writes.

local raw = call('GET', KEYS[1])
local class, expires = read_placeholder(raw or '')
if not class then
  return {now, 'record', raw}
end
if class == '{{called}}' or not live(expires) then
  return {now, 'record', false}
end
local from = 0
repeat
  local members = call('ZRANGE', KEYS[1] .. GRANTS, from, from + 99)
  for _, member in ipairs(members) do
    local id = string.sub(member, 6)
    local value = call('GET', ARGV[1] .. id)
    local grant = value and read_grant(value, id)
    if grant and live(grant.expires) then
      return {now, 'grant', value}
    end
  end
  from = from + #members
until #members == 0
-- Somebody has it, even if it cannot be told who.
return {now, 'record', raw}
