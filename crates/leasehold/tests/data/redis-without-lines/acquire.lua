-- Shared by the scripts below. A record is JSON; ours starts with the two fields that matter here, so that they can be
-- read without decoding the rest. Records of other programs are decoded.

local call = redis.call
local TOLERANCE = 1000

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Whether `text` is there twice, as it is or as a pattern.
local function twice(raw, text, plain)
  local _, first = string.find(raw, text, 1, plain)
  return first and string.find(raw, text, first, plain)
end

-- Whether a record says twice whose it is or when it ends, so that not everybody reads the same in it.
local function contradicts_itself(raw)
  -- Nearly all can be told at a glance, which is quick with letters that are rare.
  if not (twice(raw, 'kId"', true) or twice(raw, 'xpiresAtMs"', true) or string.find(raw, '\\u00', 1, true)) then
    return false
  end
  local text = string.gsub(raw, '\\u00(%x%x)', function(code)
    return string.match(string.char(tonumber(code, 16)), '%a')
  end)
  -- Notes inside of other fields may have any names. Without escapes and braces in texts it is easy to leave them out.
  text = string.gsub(string.gsub(text, '\\.', ''), '"[^"]*"', function(quoted)
    return (string.gsub(quoted, '[{}%[%]]', ''))
  end)
  text = string.match(text, '{(.*)') or ''
  text = string.gsub(string.gsub(text, '%b{}', ''), '%b[]', '')
  return twice(text, '"lockId"%s*:') or twice(text, '"expiresAtMs"%s*:')
end

-- The lock id and the expiry of a record, and where its rest begins if it is ours; nil if it is none. Whoever ends a
-- record of ours on the strength of this has to see whether it contradicts itself.
local function read(raw)
  local id, expires, rest = string.match(raw, '^{"lockId":"([^"\\]*)","expiresAtMs":(%d+)(),')
  if id then
    return id, tonumber(expires), rest
  end
  local ok, record = pcall(cjson.decode, raw)
  if not ok or type(record) ~= 'table' or type(record.lockId) ~= 'string' or type(record.expiresAtMs) ~= 'number' then
    return nil
  end
  -- The decoder lets "NaN" and the like pass for numbers.
  local finite = record.expiresAtMs - record.expiresAtMs == 0
  if finite and not contradicts_itself(raw) then
    return record.lockId, record.expiresAtMs
  end
end

local function live(expires)
  return expires > now - TOLERANCE
end

-- KEYS  lock, fence counter, index of the lock id
-- ARGV  lock id, ttl, ttl and tolerance, key as JSON, rest of the record as JSON, channel of taken locks,
--       holder that may take its own lock or '', age in ms beyond which anybody may take it or '', fence of the grant that
--       anybody may take or '', channel of granted locks, holder and key for it, '1' if a listener may be at another node,
--       set of held locks
-- Returns {1, fence, now, expiry} for a new grant, {0, now, record} if a live record stands.

local HIGHEST_FENCE = tonumber('900000000000000')

local raw = call('GET', KEYS[1])
local victim
if raw then
  local id, expires = read(raw)
  local may_end = id and (not live(expires) or ARGV[7] ~= '' or ARGV[8] ~= '')
  if not id or may_end and contradicts_itself(raw) then
    return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
  end
  if live(expires) then
    local may_steal = false
    if id ~= ARGV[1] and (ARGV[7] ~= '' or ARGV[8] ~= '' or ARGV[9] ~= '') then
      local ok, record = pcall(cjson.decode, raw)
      if not ok then
        return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
      end
      local since, limit = tonumber(record.acquiredAtMs), tonumber(ARGV[8])
      may_steal = ARGV[7] ~= '' and record.holder == ARGV[7] or since and limit and now - since > limit
        or ARGV[9] ~= '' and record.fence == ARGV[9]
      if may_steal and type(record.fence) == 'string' and type(record.key) == 'string' then
        victim = record.fence .. record.key
      end
    end
    if not may_steal then
      return {0, now, raw}
    end
  end
end

-- Never below the clock, in units of 100 microseconds: a server that lost its last writes repeats no fence.
local fence = time[1] * 10000 + math.floor(time[2] / 100)
local last = call('GET', KEYS[2])
if last then
  last = tonumber(last)
  if not last or last < 0 or last % 1 ~= 0 then
    return redis.error_reply('BADCOUNTER the fence counter is not a whole number')
  end
  if fence <= last then
    fence = last + 1
  end
end
if fence > HIGHEST_FENCE then
  return redis.error_reply('FENCEEXHAUSTED the fence of this key is beyond the highest one')
end

if not call('SET', KEYS[3], KEYS[1], 'PX', ARGV[3], 'NX') then
  local elsewhere = call('GET', KEYS[3])
  local other = elsewhere and elsewhere ~= KEYS[1] and call('GET', elsewhere)
  if other then
    local id, expires = read(other)
    if id == ARGV[1] and live(expires) then
      return redis.error_reply('IDINUSE the lock id belongs to the lock of another key')
    end
  end
  call('SET', KEYS[3], KEYS[1], 'PX', ARGV[3])
end
local expiry = now + ARGV[2]
call('SET', KEYS[2], string.format('%d', fence))
call('SET', KEYS[1], string.format('{"lockId":"%s","expiresAtMs":%d,"acquiredAtMs":%d,"key":%s,"fence":"%015d"%s',
  ARGV[1], expiry, now, ARGV[4], fence, ARGV[5]), 'PX', ARGV[3])
-- A hint for listings, which notice if it is not complete: whoever may not write it may still lock.
redis.pcall('SADD', ARGV[13], KEYS[1])
if victim then
  redis.pcall('PUBLISH', ARGV[6], 'S' .. victim)
end
-- Nobody listens as a rule. Whoever may not ask or publish may still acquire.
local listening = redis.pcall('PUBSUB', 'NUMSUB', ARGV[10])
if ARGV[12] ~= '' or listening[2] ~= 0 then
  redis.pcall('PUBLISH', ARGV[10], string.format('G%015d', fence) .. ARGV[11])
end
return {1, fence, now, expiry}
