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

-- Tells those who wait for a lock that it is free, and how many they are: see herd.rs. Whoever may not publish may still
-- release.

local function tell_freed(name)
  local channel = name .. ':freed'
  local waiting = redis.pcall('PUBSUB', 'NUMSUB', channel)
  redis.pcall('PUBLISH', channel, waiting[2] or '')
end

-- KEYS  lock. ARGV  what the indexes of lock ids start with, channel of taken locks, set of held locks. Returns the record
-- that was ended, if any.

local raw = call('GET', KEYS[1])
if not raw then
  return false
end
local id, expires = read(raw)
if not id or contradicts_itself(raw) then
  return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
end
if not live(expires) then
  return false
end
-- What could not be told of afterwards is not ended.
local ok, record = pcall(cjson.decode, raw)
if not ok or #id ~= 22 or string.find(id, '[^%w_-]')
  or type(record.key) ~= 'string' or record.key == '' or #record.key > 512 or string.find(record.key, '%z')
  or type(record.acquiredAtMs) ~= 'number' or type(record.fence) ~= 'string'
  or #record.fence ~= 15 or string.find(record.fence, '%D') or record.fence > '900000000000000' then
  return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
end
call('DEL', KEYS[1], ARGV[1] .. id)
redis.pcall('SREM', ARGV[3], KEYS[1])
tell_freed(KEYS[1])
redis.pcall('PUBLISH', ARGV[2], 'R' .. record.fence .. record.key)
return raw
