-- Shared by the scripts below. A record is JSON; ours starts with the two fields that matter here, so that they can be
-- read without decoding the rest. Records of other programs are decoded.

local call = redis.call
local TOLERANCE = {{tolerance}}

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The lock id and the expiry of a record, and where its rest begins if it is ours; nil if it is none.
local function read(raw)
  local id, expires, rest = string.match(raw, '^{"lockId":"([^"\\]*)","expiresAtMs":(%d+)(),')
  if id then
    return id, tonumber(expires), rest
  end
  local ok, record = pcall(cjson.decode, raw)
  if ok and type(record) == 'table' and type(record.lockId) == 'string' and type(record.expiresAtMs) == 'number' then
    return record.lockId, record.expiresAtMs
  end
end

local function live(expires)
  return expires > now - TOLERANCE
end
