-- Releases whatever lock an id has, or gives up its place in line. Returns 1 if a lock was released, or the absence, as
-- owned.lua tells it.

local index, id = ...
local raw, entry = owned(index, id)
if not raw and type(entry) ~= 'string' then
  return entry
end

if raw then
  local first = find_first(entry)
  call('DEL', index)
  redis.pcall('SREM', HELD, entry)
  if not settle({ name = entry, count = 0, ended = true }, first) then
    tell_freed(entry)
  end
  return 1
end

local grant, place = read_grant(entry, id), read_place(entry, id)
if grant then
  local held = look(grant.name)
  local is_held, absence = stands(held, grant)
  if not is_held then
    return absence
  end
  local first = find_first(grant.name)
  end_grant(held, grant.member)
  if held.count > 0 then
    cover(held)
  end
  if not settle(held, first) then
    tell_freed(grant.name)
  end
  return 1
end
if place then
  local held = look(place.name)
  local first = find_first(place.name)
  call('DEL', index)
  leave_line(place.name, id)
  if first and first.id == id then
    first = first_in_line(place.name)
  end
  if not settle(held, first) and held.count == 0 then
    tell_freed(place.name)
  end
end
return 0
