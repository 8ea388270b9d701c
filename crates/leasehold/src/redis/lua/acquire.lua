-- KEYS  lock, fence counter, index of the lock id
-- ARGV  lock id, ttl, ttl and tolerance, key as JSON, rest of the record as JSON, channel of taken locks,
--       holder that may take its own lock or '', age in ms beyond which anybody may take it or '', fence of the grant that
--       anybody may take or '', channel of granted locks, holder and key for it, '1' if a listener may be at another node,
--       set of held locks
-- Returns {1, fence, now, expiry} for a new grant, {0, now, record} if a live record stands.

local HIGHEST_FENCE = tonumber('{{highest_fence}}')

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
call('SET', KEYS[1], string.format('{"lockId":"%s","expiresAtMs":%d,"acquiredAtMs":%d,"key":%s,"fence":"%0{{fence_digits}}d"%s',
  ARGV[1], expiry, now, ARGV[4], fence, ARGV[5]), 'PX', ARGV[3])
-- A hint for listings, which notice if it is not complete: whoever may not write it may still lock.
redis.pcall('SADD', ARGV[13], KEYS[1])
if victim then
  redis.pcall('PUBLISH', ARGV[6], '{{stolen}}' .. victim)
end
-- Nobody listens as a rule. Whoever may not ask or publish may still acquire.
local listening = redis.pcall('PUBSUB', 'NUMSUB', ARGV[10])
if ARGV[12] ~= '' or listening[2] ~= 0 then
  redis.pcall('PUBLISH', ARGV[10], string.format('{{granted}}%0{{fence_digits}}d', fence) .. ARGV[11])
end
return {1, fence, now, expiry}
