-- Those who wait for a key stand in line beside the lock, under its name and a suffix with a character that no name has:
--   LINE  in the order in which they came     LEASES  by the end of their leases
-- A member is the lock id, whose index has the place.

local LINE, LEASES = '{{line}}', '{{leases}}'

-- A place as its index has it, unless that is none.
local function read_place(value, id)
  local ends, called, rest, since, class, of, turn, name = string.match(value,
    '^{"lockId":"[^"\\]*","untilMs":(%d+),"called":(%l+)(),"sinceMs":(%d+),"mode":"([esp])%l*"(.-),"turn":"([^"]*)","on":"(.-)","key":')
  if ends then
    -- One whose call would end later than it can was called before the clock was set back.
    local is_called = called == 'true' and tonumber(ends) <= now + {{call_lease}}
    return { id = id, ends = tonumber(ends), called = is_called, since = tonumber(since), class = class,
      limit = tonumber(string.match(of, '%d+')) or math.huge, turn = turn, name = unescape(name), raw = value,
      rest = string.sub(value, rest) }
  end
end
