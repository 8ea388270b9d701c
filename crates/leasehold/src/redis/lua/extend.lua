-- After record.lua and owned.lua. ARGV  lock id, ttl. Returns the new expiry, or the absence.

if not raw then
  return absence
end
local expiry = now + ARGV[2]
local field = '"expiresAtMs":' .. digits(expiry)
local rest = string.match(raw, '^{"lockId":"[^"\\]*","expiresAtMs":%d+(,.*)$')
local extended
if rest then
  extended = '{"lockId":"' .. ARGV[1] .. '",' .. field .. rest
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
local life = ARGV[2] + TOLERANCE
redis.call('SET', name, extended, 'PX', life)
redis.call('SET', KEYS[1], name, 'PX', life)
return expiry
