-- KEYS  lock, fence counter and index of the lock id of the first request, of the second and so on
-- ARGV  channel of granted locks; and for each request its lock id, ttl and tolerance, key as JSON, rest of the record as JSON,
--       mode, how many may hold it in this mode or '-', and 'ignore' or 'heed'
-- Returns {1, fence, now, {expiry, slot}, ...} for new grants; {3, 'record' or 'grant', the same as JSON, ...} if the ids
-- have all of them already; {2, number of the request, ...} for one that is refused, as decide.lua refuses it: nothing has
-- changed then but that the first in line was called, if it can come.

if ARGV[#ARGV] == 'asking' then
  return redis.error_reply('TRYAGAIN what belongs to the locks may still be on its way to this node')
end
local requests, has_all = {}, true
for i = 1, #KEYS / 3 do
  local a, k = 1 + (i - 1) * 7, (i - 1) * 3
  local r = { lock = KEYS[k + 1], counter = KEYS[k + 2], index = KEYS[k + 3], id = ARGV[a + 1], ttl = ARGV[a + 2] - TOLERANCE,
    life = ARGV[a + 2], key = ARGV[a + 3], rest = ARGV[a + 4], mode = ARGV[a + 5], class = string.sub(ARGV[a + 5], 1, 1),
    limit = tonumber(ARGV[a + 6]) or math.huge, line = ARGV[a + 7] }
  requests[i], r.state = r, look(r.lock)
  if r.state.broken then
    return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
  end
  local grant, problem
  grant, r.place, problem = find_own(r, r.state)
  if problem then
    return problem
  end
  r.own = grant or r.state.class == 'e' and r.state.id == r.id and { raw = r.state.raw } or nil
  has_all = has_all and r.own
end
if has_all then
  local answer = {3}
  for i, r in ipairs(requests) do
    answer[2 * i], answer[2 * i + 1] = r.own.raw and 'record' or 'grant', r.own.raw or call('GET', r.index)
  end
  return answer
end

local fence = 0
for i, r in ipairs(requests) do
  local first = first_in_line(r.lock)
  local obstacle = find_obstacle(r, r.state, first, r.own)
  if obstacle then
    settle(r.state, first)
    return {2, i - 1, obstacle}
  end
  local next, problem = next_fence(r.counter, time)
  if not next then
    return problem
  end
  fence = math.max(fence, next)
end
local answer = {1, fence, now}
for i, r in ipairs(requests) do
  if r.own and r.own.member then
    end_grant(r.state, r.own.member)
  elseif r.own then
    r.state.class, r.state.count = nil, 0
  end
  answer[i + 3] = admit(r, r.state, fence)
  settle(r.state, first_in_line(r.lock))
  tell_granted(ARGV[1], string.format('%0{{fence_digits}}d', fence), r.key, r.rest)
end
return answer
