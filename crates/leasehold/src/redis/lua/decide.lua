-- Decides about a request where it is not for one alone, or where others hold or wait.
-- Returns {1, fence, now, expiry, slot} for a new grant; {3, what the index has} for one that its id has already; and
-- {2, now, 'record', 'grant' or 'place', the same as JSON, expiry, number of holders, place in line or -1} if it is refused.

-- A place in line, or the one there is. Returns how many are before it.
local function join(r)
  local lease, ends = tonumber(r.line), now + r.line
  local line, leases = r.lock .. LINE, r.lock .. LEASES
  if not r.place then
    local last = call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2]
    call('ZADD', line, (last or 0) + 1, r.id)
    redis.pcall('SADD', BUSY, r.lock)
  end
  call('ZADD', leases, ends, r.id)
  local of = r.limit < math.huge and string.format(',"of":%d', r.limit) or ''
  call('SET', r.index, string.format('{"lockId":"%s","untilMs":%d,"called":false,"sinceMs":%d,"mode":"%s"%s,"turn":"%s","on":%s,"key":%s',
    r.id, ends, r.place and r.place.since or now, r.mode, of, r.turn, cjson.encode(r.lock), r.key) .. r.rest, 'PX', lease)
  -- What ends at once is gone at once.
  local place, latest = call('ZRANK', line, r.id), call('ZREVRANGE', leases, 0, 0, 'WITHSCORES')[2]
  call('PEXPIREAT', line, latest)
  call('PEXPIREAT', leases, latest)
  return place
end

if ARGV[#ARGV] == 'asking' then
  return redis.error_reply('TRYAGAIN what belongs to the lock may still be on its way to this node')
end
local mode, limit, line, turn, wanted = string.match(ARGV[7], '^(%l+) (%S+) (%S+) (%S+)(.*)$')
local age, stuck, same_holder = string.match(wanted, '^\n(.*)\n(.*)\n(.*)$')
local r = { lock = KEYS[1], counter = KEYS[2], index = KEYS[3], id = ARGV[3], ttl = ARGV[4] - TOLERANCE, life = ARGV[4],
  key = ARGV[5], rest = ARGV[6], same_holder = same_holder or '', age = tonumber(age), stuck = stuck or '', mode = mode,
  class = string.sub(mode, 1, 1), limit = tonumber(limit) or math.huge, line = line, turn = turn }
local held = look(r.lock, ...)
if held.broken then
  return redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
end
local grant, problem
grant, r.place, problem = find_own(r, held)
if problem then
  return problem
end
-- Whoever may take locks from others may lack the permissions for lines, where there is none.
local may_take_some = r.same_holder ~= '' or r.age or r.stuck ~= ''
local no_line = may_take_some and not r.place and redis.pcall('EXISTS', r.lock .. LINE) ~= 1
local first = not no_line and first_in_line(r.lock, r.place) or nil
if grant then
  settle(held, first)
  return {3, call('GET', r.index)}
end
if held.class == 'e' and held.id == r.id then
  return {0, now, held.raw}
end

local obstacle, number = find_obstacle(r, held, first)
local victims = {}
if obstacle then
  victims, problem = find_victims(r, held, number)
  if problem then
    return problem
  end
  if #victims == 0 then
    obstacle[7] = -1
    if tonumber(r.line) then
      obstacle[7] = join(r)
      if not first or first.id == r.id then
        first = first_in_line(r.lock)
      end
    end
    settle(held, first)
    return obstacle
  end
end
local fence
fence, problem = next_fence(r.counter, time)
if not fence then
  return problem
end
for _, victim in ipairs(victims) do
  if held.class == 'e' then
    held.class, held.count = nil, 0
  else
    end_grant(held, victim[1])
  end
end
local admitted = admit(r, held, fence)
for _, victim in ipairs(victims) do
  if victim[2] then
    redis.pcall('PUBLISH', string.sub(INDEXES, 1, -4) .. '{{taken}}', '{{stolen}}' .. victim[2])
  end
end
if held.class ~= 'e' then
  if first and first.id == r.id then
    first = first_in_line(r.lock)
  end
  settle(held, first)
elseif not first or first.id == r.id and call('EXISTS', r.lock .. LINE) == 0 then
  -- Nobody waits. Behind one who has it alone there is room for nobody, so that nobody is to be called.
  redis.pcall('SREM', BUSY, r.lock)
end
tell_granted(ARGV[2], string.format('%0{{fence_digits}}d', fence), r.key, r.rest)
return {1, fence, now, admitted[1], admitted[2]}
