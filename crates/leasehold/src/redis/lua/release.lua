-- Releases the lock of a lock id, or gives up its place in line. `held` is the set of held locks. Returns 1 if a lock was
-- released, or the absence.

local function apply(index, id, held)
  local raw, name = owned(index, id)
  if not raw then
    return type(name) == 'string' and busy(index, id, name) or name
  end
  -- While a cluster moves the lock it cannot be told whether there is a line, and all who wait are told.
  if redis.pcall('EXISTS', name .. '{{line}}') == 1 then
    return busy(index, id, name, true)
  end
  call('DEL', name, index)
  redis.pcall('SREM', held, name)
  tell_freed(name)
  return 1
end
