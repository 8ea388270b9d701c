-- KEYS  lock, fence counter, index of the lock id
-- ARGV  lock id, ttl, key as JSON, rest of the record as JSON, holder that may take its own lock or '',
--       age in ms beyond which anybody may take it or '', channel of taken locks
-- Returns {1, fence, now, expiry} for a new grant, {0, now, record} if a live record stands.

local HIGHEST_FENCE = 900000000000000

local function may_steal(raw)
  if ARGV[5] == '' and ARGV[6] == '' then
    return false
  end
  local record = cjson.decode(raw)
  if ARGV[5] ~= '' and record.holder == ARGV[5] then
    return true
  end
  local since = tonumber(record.acquiredAtMs)
  return ARGV[6] ~= '' and since ~= nil and now - since > tonumber(ARGV[6])
end

local raw = redis.call('GET', KEYS[1])
local victim
if raw then
  local id, expires = read(raw)
  if not id then
    return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
  end
  if live(expires) then
    if id == ARGV[1] or not may_steal(raw) then
      return {0, now, raw}
    end
    victim = id
  end
end

-- Never below the clock, in units of 100 microseconds: a server that lost its last writes repeats no fence.
local fence = time[1] * 10000 + math.floor(time[2] / 100)
local last = redis.call('GET', KEYS[2])
if last then
  if not string.match(last, '^%d+$') then
    return redis.error_reply('BADCOUNTER the fence counter is not a number')
  end
  fence = math.max(fence, tonumber(last) + 1)
end
if fence > HIGHEST_FENCE then
  return redis.error_reply('FENCEEXHAUSTED the fence of this key is beyond the highest one')
end

local life = ARGV[2] + TOLERANCE
if not redis.call('SET', KEYS[3], KEYS[1], 'PX', life, 'NX') then
  local elsewhere = redis.call('GET', KEYS[3])
  if elsewhere and elsewhere ~= KEYS[1] then
    local other = redis.call('GET', elsewhere)
    if other then
      local id, expires = read(other)
      if id == ARGV[1] and live(expires) then
        return redis.error_reply('IDINUSE the lock id belongs to the lock of another key')
      end
    end
  end
  redis.call('SET', KEYS[3], KEYS[1], 'PX', life)
end
redis.call('SET', KEYS[2], digits(fence))
local expiry = now + ARGV[2]
redis.call('SET', KEYS[1], '{"lockId":"' .. ARGV[1] .. '","expiresAtMs":' .. digits(expiry)
  .. ',"acquiredAtMs":' .. digits(now) .. ',"key":' .. ARGV[3]
  .. ',"fence":"' .. string.format('%015.0f', fence) .. '"' .. ARGV[4], 'PX', life)
if victim then
  redis.pcall('PUBLISH', ARGV[7], 'S' .. victim)
end
return {1, fence, now, expiry}
