-- Finds the lock of a lock id, for release and extend. Returns its record, name, and where the rest of the record begins
-- if it is ours; nothing and why it is not held with this id: 0 there is no such lock, -1 its time is over; nothing and
-- what the index has if that is no plain lock; or nothing and an error.

local function owned(index, id)
  local name = call('GET', index)
  if name and is_entry(name, id) then
    return nil, name
  end
  local raw = name and call('GET', name)
  if not raw then
    if name and ARGV[#ARGV] == 'asking' then
      return nil, redis.error_reply('TRYAGAIN the lock is still on its way to this node')
    end
    return nil, 0
  end
  local found, expires, rest = read(raw)
  if found ~= id then
    return nil, 0
  end
  if not live(expires) then
    return nil, -1
  end
  return raw, name, rest
end
