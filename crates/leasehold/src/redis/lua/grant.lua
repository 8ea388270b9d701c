-- Those who hold a key together stand beside the lock, under its name and a suffix with a character that no name has:
--   GRANTS  by fence, so the oldest first     ENDS  by expiry
-- A member is the slot in five digits and the lock id, whose index has the grant. The record under the name of the lock is a
-- placeholder that lasts as long as the last of them: programs that know nothing of this see a lock that somebody has.
-- Without it the names beside it mean nothing.

local GRANTS, ENDS = '{{grants}}', '{{ends}}'

-- A text out of JSON.
local function unescape(text)
  return string.find(text, '\\', 1, true) and cjson.decode('["' .. text .. '"]')[1] or text
end

local function member_of(id, slot)
  return string.format('%05d', slot or 0) .. id
end

-- A grant as its index has it, unless that is none.
local function read_grant(value, id)
  local expires, rest, class, slot, name = string.match(value,
    '^{"lockId":"[^"\\]*","expiresAtMs":(%d+)(),"mode":"([sp])%l*"(.-),"on":"(.-)","acquiredAtMs":')
  if expires then
    slot = tonumber(string.match(slot, '"slot":(%d+)'))
    return { id = id, expires = tonumber(expires), rest = string.sub(value, rest), class = class, slot = slot,
      member = member_of(id, slot), name = unescape(name) }
  end
end

-- What a placeholder stands for that is there in place of a record, and when it ends: 's' or 'p' for those who hold the key,
-- or that it is kept for the first in line.
local function read_placeholder(raw)
  local class, expires = string.match(raw, '^{"lockId":"~(%l)[^"]*","expiresAtMs":(%d+),')
  return class, tonumber(expires)
end
