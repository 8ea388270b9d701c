-- KEYS  lock, fence counter and index of the lock id of the first request, of the second and so on
-- ARGV  set of held locks, channel of granted locks, and lock id, life, key, rest and way of each
-- Returns the answer to each, or what went wrong with it as text: what fails for one fails for no other.

local answers = {}
for i = 1, #KEYS / 3 do
  local ok, answer = pcall(apply, KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i], unpack(ARGV, 5 * i - 2, 5 * i + 2))
  answers[i] = as_text(ok, answer)
end
return answers
