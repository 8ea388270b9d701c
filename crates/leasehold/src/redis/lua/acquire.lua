-- KEYS  lock, fence counter, index of the lock id
-- ARGV  lock id, ttl, ttl and tolerance, key as JSON, rest of the record as JSON, channel of taken locks,
--       holder that may take its own lock or '', age in ms beyond which anybody may take it or '', fence of the grant that
--       anybody may take or '', channel of granted locks, holder and key for it, '1' if a listener may be at another node,
--       set of held locks; and mode, how many may hold the lock in it or '-', 'ignore' or 'heed' for what to do about the line
--       or the lease of a place in it, and what the channel is called that tells of its turn or '-', in one text
-- Returns {1, fence, now, expiry} for a new grant, {0, now, record} if a live record stands; decide.lua tells the rest.

if string.byte(ARGV[14]) ~= 101 then
  return busy()
end
local raw = call('GET', KEYS[1])
local stolen, victim = false, nil
if raw then
  local id, expires = read(raw)
  local may_end = id and (not live(expires) or ARGV[7] ~= '' or ARGV[8] ~= '')
  if not id or may_end and contradicts_itself(raw) then
    return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
  end
  if live(expires) then
    if string.byte(id) == 126 then
      return busy(raw)
    end
    if id ~= ARGV[1] and (ARGV[7] ~= '' or ARGV[8] ~= '' or ARGV[9] ~= '') then
      local ok, record = pcall(cjson.decode, raw)
      if not ok then
        return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
      end
      local since, limit = tonumber(record.acquiredAtMs), tonumber(ARGV[8])
      stolen = ARGV[7] ~= '' and record.holder == ARGV[7] or since and limit and now - since > limit
        or ARGV[9] ~= '' and record.fence == ARGV[9]
      if stolen and type(record.fence) == 'string' and type(record.key) == 'string' then
        victim = record.fence .. record.key
      end
    end
    if not stolen then
      if id ~= ARGV[1] and string.find(ARGV[14], '^%l+ %S+ %d') then
        return busy(raw)
      end
      return {0, now, raw}
    end
  end
end
-- Whoever may not ask whether there is a line passes it, as others do who know of none.
if not stolen and redis.pcall('EXISTS', KEYS[1] .. '{{line}}') == 1 then
  return busy()
end

local fence, problem = next_fence(KEYS[2], time)
if not fence then
  return problem
end
if not call('SET', KEYS[3], KEYS[1], 'PX', ARGV[3], 'NX') then
  -- The lock id has something already, here or elsewhere.
  return busy()
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
tell_granted(ARGV[10], ARGV[12], fence, ARGV[11])
return {1, fence, now, expiry}
