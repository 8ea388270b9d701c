-- Shared by the scripts below. A record is JSON; ours starts with the two fields that matter here, so that they can be
-- read without decoding the rest. Records of other programs are decoded.

-- Whether a record says twice whose it is or when it ends, so that not everybody reads the same in it.
local function contradicts_itself(raw)
  -- Whether `text` is there twice, as it is or as a pattern.
  local function twice(where, text, plain)
    local _, first = string.find(where, text, 1, plain)
    return first and string.find(where, text, first, plain)
  end
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
