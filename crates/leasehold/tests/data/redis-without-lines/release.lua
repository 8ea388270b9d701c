-- Shared by the scripts below. A record is JSON; ours starts with the two fields that matter here, so that they can be
-- read without decoding the rest. Records of other programs are decoded.

local call = redis.call
local TOLERANCE = 1000

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Whether `text` is there twice, as it is or as a pattern.
local function twice(raw, text, plain)
  local _, first = string.find(raw, text, 1, plain)
  return first and string.find(raw, text, first, plain)
end

-- Whether a record says twice whose it is or when it ends, so that not everybody reads the same in it.
local function contradicts_itself(raw)
  -- Nearly all can be told at a glance, which is quick with letters that are rare.
  if not (twice(raw, 'kId"', true) or twice(raw, 'xpiresAtMs"', true) or string.find(raw, '\\u00', 1, true)) then
    return false
  end
  local text = string.gsub(raw, '\\u00(%x%x)', function(code)
    return string.match(string.char(tonumber(code, 16)), '%a')
  end)
  -- Notes inside of other fields may have any names. Without escapes and braces in texts it is easy to leave them out.
  text = string.gsub(string.gsub(text, '\\.', ''), '"[^"]*"', function(quoted)
    return (string.gsub(quoted, '[{}%[%]]', ''))
  end)
  text = string.match(text, '{(.*)') or ''
  text = string.gsub(string.gsub(text, '%b{}', ''), '%b[]', '')
  return twice(text, '"lockId"%s*:') or twice(text, '"expiresAtMs"%s*:')
end

-- The lock id and the expiry of a record, and where its rest begins if it is ours; nil if it is none. Whoever ends a
-- record of ours on the strength of this has to see whether it contradicts itself.
local function read(raw)
  local id, expires, rest = string.match(raw, '^{"lockId":"([^"\\]*)","expiresAtMs":(%d+)(),')
  if id then
    return id, tonumber(expires), rest
  end
  local ok, record = pcall(cjson.decode, raw)
  if not ok or type(record) ~= 'table' or type(record.lockId) ~= 'string' or type(record.expiresAtMs) ~= 'number' then
    return nil
  end
  -- The decoder lets "NaN" and the like pass for numbers.
  local finite = record.expiresAtMs - record.expiresAtMs == 0
  if finite and not contradicts_itself(raw) then
    return record.lockId, record.expiresAtMs
  end
end

local function live(expires)
  return expires > now - TOLERANCE
end

-- Finds the lock of a lock id, for release and extend. Returns its record, name, and where the rest of the record begins
-- if it is ours; nothing and why it is not held with this id: 0 there is no such lock, -1 its time is over; or nothing
-- and an error.

local function owned(index, id)
  local name = call('GET', index)
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

-- Tells those who wait for a lock that it is free, and how many they are: see herd.rs. Whoever may not publish may still
-- release.

local function tell_freed(name)
  local channel = name .. ':freed'
  local waiting = redis.pcall('PUBSUB', 'NUMSUB', channel)
  redis.pcall('PUBLISH', channel, waiting[2] or '')
end

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

-- Applies what stands above to one lock. KEYS  index of its lock id. ARGV  lock id, ...

return apply(KEYS[1], unpack(ARGV))
