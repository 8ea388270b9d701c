-- The one rule: a request is granted if those who hold the key leave room for it, and if nobody stands before it in line.

-- What the index of a request says of it: nothing, its grant or its place for this key, and an error if the lock id
-- belongs to another key.
local function find_own(r, held)
  local value = call('GET', r.index)
  if not value then
    return nil
  end
  local grant, place, other
  if is_entry(value, r.id) then
    grant, place = read_grant(value, r.id), read_place(value, r.id)
    local name = (grant or place or {}).name
    if grant then
      local is_held = stands(name == r.lock and held or look(name), grant)
      grant, other = is_held and name == r.lock and grant or nil, is_held and name ~= r.lock
    elseif place then
      local waits = place.ends > now and call('ZSCORE', name .. LINE, r.id)
      place, other = waits and name == r.lock and place or nil, waits and name ~= r.lock
    end
  elseif value ~= r.lock then
    local raw = call('GET', value)
    local id, expires = nil, nil
    if raw then
      id, expires = read(raw)
    end
    other = id == r.id and live(expires)
  end
  if other then
    return nil, nil, redis.error_reply('IDINUSE the lock id belongs to the lock of another key')
  end
  return grant, place
end

-- The holder before all others, and the expiry that is `number` from the first, without the request's own lock.
local function oldest_and_end(held, own, number)
  local ids = call('ZRANGE', held.name .. GRANTS, 0, 1)
  local oldest = own and ids[1] == own.member and ids[2] or ids[1]
  local rank = own and call('ZRANK', held.name .. ENDS, own.member)
  local at = rank and number - 1 >= rank and number or number - 1
  return oldest and call('GET', INDEXES .. string.sub(oldest, 6)),
    tonumber(call('ZRANGE', held.name .. ENDS, at, at, 'WITHSCORES')[2])
end

-- Who is in the way of a request, apart from `own`, a lock that its id has: nobody, or the answer to it as far as it goes,
-- and how many grants would have to end.
local function find_obstacle(r, held, first, own)
  local others = { count = held.count - (own and 1 or 0), class = held.class }
  local number = must_end(others, r.class, r.limit)
  local ahead = first and first.id ~= r.id and (r.line ~= 'ignore' or others.count == 0 and first.called) and first
  if number == 0 and not ahead then
    return nil
  end
  -- Whoever is refused calls the first in line if it can come. And live for a lock is a while longer than live for a place.
  local place_ends = ahead and ahead.ends - TOLERANCE
  if ahead and must_end(held, ahead.class, ahead.limit) == 0 then
    place_ends = math.min(ahead.ends, now + CALL_LEASE) - TOLERANCE
  end
  if others.count == 0 then
    return {2, now, 'place', ahead.raw, place_ends, 0}, number
  end
  if held.class == 'e' then
    return {2, now, 'record', held.raw, held.expires, 1}, number
  end
  local oldest, ends = oldest_and_end(held, own, math.max(number, 1))
  if number == 0 then
    ends = place_ends
  end
  return {2, now, oldest and 'grant' or 'record', oldest or held.raw, ends or held.expires, others.count}, number
end
