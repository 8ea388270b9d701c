-- The fence of a new grant at a time of the server, or nothing and an error.

local function next_fence(counter, time)
  -- Never below the clock, in units of 100 microseconds: a server that lost its last writes repeats no fence.
  local fence = time[1] * 10000 + math.floor(time[2] / 100)
  local last = redis.call('GET', counter)
  if last then
    last = tonumber(last)
    if not last or last < 0 or last % 1 ~= 0 then
      return nil, redis.error_reply('BADCOUNTER the fence counter is not a whole number')
    end
    if fence <= last then
      fence = last + 1
    end
  end
  if fence > {{highest_fence}} then
    return nil, redis.error_reply('FENCEEXHAUSTED the fence of this key is beyond the highest one')
  end
  return fence
end
