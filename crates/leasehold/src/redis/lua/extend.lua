-- Extends the lock of a lock id. `life` is the ttl and the tolerance. Returns the new expiry, or the absence.

local function apply(index, id, ttl, life)
  local raw, name, rest = owned(index, id)
  if not raw then
    return type(name) == 'string' and busy(index, id, ttl, life, name) or name
  end
  local expiry = now + ttl
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
  call('SET', name, extended, 'PX', life)
  call('SET', index, name, 'PX', life)
  return expiry
end
