-- The grants to take for a request: the oldest of those it may take, as many as are in its way, or none. Returns them as
-- {member, fence and key to tell of}, or nothing and an error.

local function may_take(r, record)
  local since = tonumber(record.acquiredAtMs)
  return r.same_holder ~= '' and record.holder == r.same_holder or since and r.age and now - since > r.age
    or r.stuck ~= '' and record.fence == r.stuck
end

local function find_victims(r, held, number)
  if number == 0 or r.same_holder == '' and not r.age and r.stuck == '' then
    return {}
  end
  local function victim(member, raw)
    local ok, record = pcall(cjson.decode, raw)
    if not ok or held.class == 'e' and contradicts_itself(raw) then
      return nil, redis.error_reply('BADRECORD what is stored under the name of the lock is not a lock')
    end
    local told = type(record.fence) == 'string' and type(record.key) == 'string' and record.fence .. record.key
    return may_take(r, record) and { member, told }
  end
  if held.class == 'e' then
    local found, problem = victim('', held.raw)
    return not problem and (found and {found} or {}) or nil, problem
  end
  local victims = {}
  for _, member in ipairs(call('ZRANGE', held.name .. GRANTS, 0, -1)) do
    local raw = call('GET', INDEXES .. string.sub(member, 6))
    local found = raw and victim(member, raw)
    if found then
      victims[#victims + 1] = found
      if #victims == number then
        return victims
      end
    elseif number == held.count then
      break
    end
  end
  return {}
end
