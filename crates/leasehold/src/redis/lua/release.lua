-- Releases the lock of a lock id. `held` is the set of held locks. Returns 1 if it was released, or the absence.

local function apply(index, id, held)
  local raw, name = owned(index, id)
  if not raw then
    return name
  end
  call('DEL', name, index)
  redis.pcall('SREM', held, name)
  tell_freed(name)
  return 1
end
