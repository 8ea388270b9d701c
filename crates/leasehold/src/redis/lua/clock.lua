-- The time of the server, and what it says of an expiry.

local call = redis.call
local TOLERANCE = {{tolerance}}

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function live(expires)
  return expires > now - TOLERANCE
end
