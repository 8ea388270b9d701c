-- Releases the lock of a lock id, or gives up its place in line. `held` is the set of held locks. Returns 1 if a lock was
-- released, or the absence, as leave.lua tells it.

local function apply(index, id, held)
  local name = call('GET', index)
  -- What is no plain lock begins with a brace and a quotation mark; names may begin with a brace, too.
  local raw = name and (string.byte(name) ~= 123 or string.byte(name, 2) ~= 34) and call('GET', name)
  -- Nearly always it is a record of ours that begins so, which is seen without reading all of it.
  local start = '{"lockId":"' .. id .. '","expiresAtMs":'
  local expires = raw and string.sub(raw, 1, #start) == start and string.match(raw, '^%d+', #start + 1)
  if not expires or not live(tonumber(expires)) then
    return busy(index, id)
  end
  -- While a cluster moves the lock it cannot be told whether there is a line, and all who wait are told.
  if redis.pcall('EXISTS', name .. '{{line}}') == 1 then
    return busy(index, id)
  end
  call('DEL', name, index)
  redis.pcall('SREM', held, name)
  tell_freed(name)
  return 1
end
