-- Extends a lock that several hold.

local index, id, ttl, life, entry = ...
local grant = read_grant(entry, id)
if not grant then
  return 0
end
local held = look(grant.name)
local is_held, absence = stands(held, grant)
if not is_held then
  return absence
end
local expiry = now + ttl
call('ZADD', grant.name .. ENDS, expiry, grant.member)
call('SET', index, string.format('{"lockId":"%s","expiresAtMs":%d', id, expiry) .. grant.rest, 'PX', life)
cover(held)
return expiry
