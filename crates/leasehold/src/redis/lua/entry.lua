-- An index has the name of its lock. What is no plain lock is kept in the index itself, as JSON that begins with the lock
-- id, which no name of a lock does that the index of this id leads to:
--   a grant  {"lockId", "expiresAtMs", "mode": "shared" or "permit", "slot", "of", "on": name of the lock, "acquiredAtMs",
--            "key", "fence", "holder", "metadata"}
--   a place  {"lockId", "untilMs", "called", "sinceMs", "mode", "of", "turn", "on": name of the lock, "key", "holder",
--            "metadata"}

local function is_entry(value, id)
  return string.byte(value) == 123 and string.sub(value, 1, #id + 12) == '{"lockId":"' .. id .. '"'
end
