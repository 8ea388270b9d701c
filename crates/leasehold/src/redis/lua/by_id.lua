-- KEYS  index of the lock id. ARGV  lock id. Returns {now, 'record' or 'grant' for what follows, the lock or nil}, which may
-- be the record of another lock id. Never writes.

local value = call('GET', KEYS[1])
local is_plain = value and not is_entry(value, ARGV[1])
local grant = value and not is_plain and read_grant(value, ARGV[1])
if value and not is_plain and not grant then
  return {now, 'record', false}
end
local raw = value and call('GET', grant and grant.name or value)
if value and not raw and ARGV[#ARGV] == 'asking' then
  return redis.error_reply('TRYAGAIN the lock is still on its way to this node')
end
if not grant then
  return {now, 'record', raw}
end
local stands = read_placeholder(raw or '') == grant.class and call('ZSCORE', grant.name .. ENDS, grant.member)
return {now, 'grant', stands and value}
