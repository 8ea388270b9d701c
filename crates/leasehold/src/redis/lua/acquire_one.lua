-- KEYS  lock, fence counter, index of the lock id
-- ARGV  set of held locks, channel of granted locks, and what apply wants: lock id, life, key, rest, way

return apply(KEYS[1], KEYS[2], KEYS[3], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7])
