-- Releases the lock of a lock id. Returns 1 if it was released, or the absence.

local function apply(index, id)
  local raw, name = owned(index, id)
  if not raw then
    return name
  end
  call('DEL', name, index)
  redis.pcall('SREM', held_beside(index, id), name)
  tell_freed(name)
  return 1
end
