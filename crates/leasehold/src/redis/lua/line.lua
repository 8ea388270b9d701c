-- What changes who waits for a key. While nobody holds it and the first in line has been called, the record under the name
-- of the lock is a placeholder, so that programs that know of no line do not take what is kept for another.

local CALL_LEASE = {{call_lease}}
local MOST = 1000

local function leave_line(name, id)
  call('ZREM', name .. LINE, id)
  call('ZREM', name .. LEASES, id)
end

-- The first of those whose lease has not ended. Others are forgotten. `own` is a place that is known already.
local function first_in_line(name, own)
  local dead = call('ZRANGEBYSCORE', name .. LEASES, '-inf', now)
  for first = 1, #dead, MOST do
    local last = math.min(first + MOST - 1, #dead)
    call('ZREM', name .. LINE, unpack(dead, first, last))
    call('ZREM', name .. LEASES, unpack(dead, first, last))
  end
  while true do
    local id = call('ZRANGE', name .. LINE, 0, 0)[1]
    if not id then
      return nil
    elseif own and own.id == id then
      return own
    end
    local value = call('GET', INDEXES .. id)
    local place = value and read_place(value, id)
    if place and place.name == name and place.ends > now then
      return place
    end
    leave_line(name, id)
  end
end

-- The same for a release, which must not fail because it cannot be told who waits, as while a cluster moves the lock or for
-- lack of permissions: all who listen are told then.
local function find_first(name)
  if ARGV[#ARGV] == 'asking' or redis.pcall('EXISTS', name .. LINE) ~= 1 then
    return nil
  end
  local ok, first = pcall(first_in_line, name)
  return ok and first or nil
end

-- Tells somebody in line to ask. Whoever may not publish may still release.
local function tell_turn(turn)
  return redis.pcall('PUBLISH', string.sub(INDEXES, 1, -4) .. '{{turn}}' .. turn, '')
end

-- Calls the first in line: it has to ask soon, or its place is gone. Tells whether that was allowed.
local function call_first(name, first)
  local ends = math.min(first.ends, now + CALL_LEASE)
  if type(redis.pcall('ZADD', name .. LEASES, ends, first.id)) ~= 'number' then
    return false
  end
  first.called, first.ends = true, ends
  first.raw = string.format('{"lockId":"%s","untilMs":%d,"called":true', first.id, first.ends) .. first.rest
  call('SET', INDEXES .. first.id, first.raw, 'PX', first.ends - now)
  local heard = tell_turn(first.turn)
  if heard == 0 and not string.find(INDEXES, '{', 1, true) then
    -- Nobody heard it, or somebody at another node of a cluster. The second, if it looks, is told when that place ends.
    local second = call('ZRANGE', name .. LINE, 1, 1)[1]
    local value = second and call('GET', INDEXES .. second)
    local place = value and read_place(value, second)
    if place then
      tell_turn(place.turn)
    end
  end
  return true
end

-- To be done after every change: calls the first in line if there is room for it and it was not called yet, and keeps a key
-- that nobody holds for it. Tells whether anybody is in line.
local function settle(held, first)
  if first and not first.called and must_end(held, first.class, first.limit) == 0 and not call_first(held.name, first) then
    first = nil
  end
  local name = held.name
  if held.count == 0 and first then
    local id, ends = placeholder_id('{{called}}', name), first.ends - TOLERANCE
    if held.id ~= id or held.expires ~= ends then
      local key, behind = string.match(first.rest, ',"key":(".-"),"holder":()')
      local holder = string.match(first.rest, '^"[^"\\]*"', behind)
      call('SET', name, string.format('{"lockId":"%s","expiresAtMs":%d,"acquiredAtMs":%d,"key":%s,"fence":"%0{{fence_digits}}d"%s}',
        id, ends, now, key, 0, holder and ',"holder":' .. holder or ''), 'PX', first.ends - now)
    end
  elseif held.count == 0 and (held.ended or held.id and string.byte(held.id) == 126) then
    call('DEL', name)
  end
  if not first and (held.count == 0 or held.class == 'e') then
    redis.pcall('SREM', BUSY, name)
  end
  return first ~= nil
end
