-- Applies what stands above to many locks. KEYS  indexes of their lock ids. ARGV  lock id, ... of the first, of the second
-- and so on. Returns the answer of each, or what went wrong with it as text: what fails for one fails for no other.

-- One argument more is for all of them.
local each = math.floor(#ARGV / #KEYS)
local answers = {}
for i, index in ipairs(KEYS) do
  local ok, answer = pcall(apply, index, unpack(ARGV, (i - 1) * each + 1, i * each))
  answers[i] = as_text(ok, answer)
end
return answers
