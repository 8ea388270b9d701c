-- What changes who holds a key together. SLOTS has a bit for each permit that is taken.

local SLOTS = '{{slots}}'
-- Sets for listings, which notice if they are not complete: locks that one holds alone, and those that are or have more.
local HELD, BUSY = INDEXES .. '{{held}}', INDEXES .. '{{busy}}'

local function placeholder_id(kind, name)
  return '~' .. kind .. string.sub(redis.sha1hex(name), 1, {{lock_id_length}} - 2)
end

local function forget_grant(held, member)
  call('ZREM', held.name .. ENDS, member)
  call('ZREM', held.name .. GRANTS, member)
  if held.class == 'p' then
    call('SETBIT', held.name .. SLOTS, tonumber(string.sub(member, 1, 5)), 0)
  end
end

-- How a key is held: `count` who do, in the way `class` says: 'e' for one alone, 's' or 'p'. `raw` is its record if that was read.
local function look(name, raw)
  local held = { name = name, count = 0, raw = raw or call('GET', name) }
  if not held.raw then
    return held
  end
  local id, expires, rest = read(held.raw)
  if not id or not live(expires) and contradicts_itself(held.raw) then
    -- Nobody is let in over it.
    held.class, held.count, held.broken = 'e', 1, true
    return held
  end
  held.id, held.expires, held.rest = id, expires, rest
  local class = string.match(id, '^~(%l)')
  if not live(expires) or class == '{{called}}' then
    return held
  end
  held.class, held.count = class or 'e', 1
  if class then
    for _, member in ipairs(call('ZRANGEBYSCORE', name .. ENDS, '-inf', now - TOLERANCE)) do
      forget_grant(held, member)
    end
    -- While the placeholder lasts somebody has it, whatever became of what is beside it.
    held.count = math.max(1, call('ZCARD', name .. ENDS))
  end
  return held
end

-- How many of them are in the way of one more who wants it in the way of `class`, of which there may be `limit`.
local function must_end(held, class, limit)
  if held.count == 0 then
    return 0
  end
  if held.class == class and class ~= 'e' then
    return math.max(0, held.count + 1 - limit)
  end
  return held.count
end

-- Has the placeholder, and what is beside it, last as long as the last grant. `rest` is all of it behind its expiry.
local function cover(held, rest)
  local latest = tonumber(call('ZREVRANGE', held.name .. ENDS, 0, 0, 'WITHSCORES')[2])
  if rest or latest ~= held.expires then
    rest = rest or string.sub(held.raw, held.rest)
    held.raw = string.format('{"lockId":"%s","expiresAtMs":%d', held.id, latest) .. rest
    call('SET', held.name, held.raw, 'PX', latest + TOLERANCE - now)
  end
  if latest ~= held.expires then
    held.expires = latest
    for _, suffix in ipairs({GRANTS, ENDS, held.class == 'p' and SLOTS or nil}) do
      call('PEXPIREAT', held.name .. suffix, latest + TOLERANCE)
    end
  end
end

-- Ends a grant.
local function end_grant(held, member)
  local index = INDEXES .. string.sub(member, 6)
  held.count = held.count - 1
  if held.count == 0 then
    call('DEL', unpack({index, held.name .. GRANTS, held.name .. ENDS, held.class == 'p' and held.name .. SLOTS or nil}))
    held.class = nil
  else
    call('DEL', index)
    forget_grant(held, member)
  end
end

-- Whether a grant still stands. If not, also the answer to whoever releases or extends it.
local function stands(held, grant)
  local beside = {grant.name .. GRANTS, grant.name .. ENDS, grant.class == 'p' and grant.name .. SLOTS or nil}
  if held.class == grant.class and call('EXISTS', unpack(beside)) == #beside
    and call('ZSCORE', grant.name .. ENDS, grant.member) then
    return true
  end
  return false, ARGV[#ARGV] == 'asking' and redis.error_reply('TRYAGAIN the lock is still on its way to this node') or 0
end
