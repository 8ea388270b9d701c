-- Lets a request in. Those in its way, and what its own id had, have ended. Returns {expiry, slot or -1}.

local function admit(r, held, fence)
  local expiry, slot = now + r.ttl, nil
  call('SET', r.counter, string.format('%d', fence))
  if r.place then
    leave_line(r.lock, r.id)
  end
  local record = string.format('"acquiredAtMs":%d,"key":%s,"fence":"%0{{fence_digits}}d"', now, r.key, fence)
  if r.class == 'e' then
    held.class, held.count, held.id = 'e', 1, r.id
    call('SET', r.index, r.lock, 'PX', r.life)
    call('SET', r.lock, string.format('{"lockId":"%s","expiresAtMs":%d,', r.id, expiry) .. record .. r.rest, 'PX', r.life)
    redis.pcall('SADD', HELD, r.lock)
    return {expiry, -1}
  end
  if held.count == 0 then
    -- What others left who died, or were overruled by a program that knows nothing of them.
    call('DEL', r.lock .. GRANTS, r.lock .. ENDS, r.lock .. SLOTS)
    held.id, held.expires, held.raw = placeholder_id(r.class, r.lock), nil, ''
  end
  held.class, held.count = r.class, held.count + 1
  local permit = ''
  if r.class == 'p' then
    slot = call('BITPOS', r.lock .. SLOTS, 0)
    call('SETBIT', r.lock .. SLOTS, slot, 1)
    permit = string.format(',"slot":%d,"of":%d', slot, r.limit)
  end
  local member = member_of(r.id, slot)
  call('ZADD', r.lock .. GRANTS, fence, member)
  call('ZADD', r.lock .. ENDS, expiry, member)
  call('SET', r.index, string.format('{"lockId":"%s","expiresAtMs":%d,"mode":"%s"%s,"on":%s,', r.id, expiry, r.mode, permit,
    cjson.encode(r.lock)) .. record .. r.rest, 'PX', r.life)
  -- Other programs may take a lock by its holder or its age: not unless all who have it are of that name or age.
  local holder = string.match(r.rest, '^(,"holder":"[^"\\]*")')
  if holder and (held.count == 1 or string.find(held.raw, holder .. '}', 1, true)) then
    record = record .. holder
  end
  cover(held, ',' .. record .. '}')
  redis.pcall('SADD', BUSY, r.lock)
  return {expiry, slot or -1}
end
