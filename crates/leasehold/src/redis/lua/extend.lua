-- After record.lua and owned.lua. ARGV  lock id, ttl, ttl and tolerance. Returns the new expiry, or the absence.

if not raw then
  return absence
end
local expiry = now + ARGV[2]
local field = string.format('"expiresAtMs":%d', expiry)
local extended
if rest then
  extended = '{"lockId":"' .. id .. '",' .. field .. string.sub(raw, rest)
else
  -- Of another program. Changed in place if we can be sure of the place: encoding anew loses empty lists and large numbers.
  extended = string.gsub(raw, '"expiresAtMs"%s*:%s*%d+', field, 1)
  local ok, record = pcall(cjson.decode, extended)
  if not ok or record.expiresAtMs ~= expiry then
    record = cjson.decode(raw)
    record.expiresAtMs = expiry
    extended = cjson.encode(record)
  end
end
call('SET', name, extended, 'PX', ARGV[3])
call('SET', KEYS[1], name, 'PX', ARGV[3])
return expiry
