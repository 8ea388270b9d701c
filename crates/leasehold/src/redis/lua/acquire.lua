-- Asks for a lock. `life` is the ttl and the tolerance; `key` and `rest` are parts of the record, as JSON; `way` is mode, how
-- many may hold the lock in it or '-', 'ignore' or 'heed' for what to do about the line or the lease of a place in it, and
-- what the channel is called that tells of its turn or '-', all in one text, because each argument costs the server as much
-- as a comparison of many. If it may take the lock from others, three lines follow: the age in ms beyond which it may or '',
-- the fence of the grant that it may take or '', and the holder who may take its own lock or ''.
-- Returns 'fence now expiry' for a new grant, {0, now, record} if a live record stands; decide.lua tells the rest.

local function apply(lock, counter, index, id, life, key, rest, way)
  if string.byte(way) ~= 101 then
    return busy()
  end
  local raw = call('GET', lock)
  if raw then
    local found, expires = read(raw)
    if not found or not live(expires) and contradicts_itself(raw) then
      return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
    end
    if live(expires) then
      -- Whoever neither joins the line nor takes locks from others has '-' for its turn, and nothing behind it.
      if found == id or string.find(way, '^%l+ %S+ %S+ %-$') and string.byte(found) ~= 126 then
        return {0, now, raw}
      end
      return busy(raw)
    end
  end
  -- Whoever may not ask whether there is a line passes it, as others do who know of none.
  if redis.pcall('EXISTS', lock .. '{{line}}') == 1 then
    return busy()
  end
  local fence, problem = next_fence(counter, time)
  if not fence then
    return problem
  end
  if not call('SET', index, lock, 'PX', life, 'NX') then
    -- The lock id has something already, here or elsewhere.
    return busy()
  end
  local digits = string.format('%0{{fence_digits}}d', fence)
  local since, expiry = string.format('%d', now), string.format('%d', now + life - TOLERANCE)
  call('SET', counter, string.format('%d', fence))
  call('SET', lock, '{"lockId":"' .. id .. '","expiresAtMs":' .. expiry .. ',"acquiredAtMs":' .. since .. ',"key":' .. key
    .. ',"fence":"' .. digits .. '"' .. rest, 'PX', life)
  -- A hint for listings, which notice if it is not complete: whoever may not write it may still lock.
  redis.pcall('SADD', ARGV[1], lock)
  tell_granted(ARGV[2], digits, key, rest)
  return digits .. ' ' .. since .. ' ' .. expiry
end
