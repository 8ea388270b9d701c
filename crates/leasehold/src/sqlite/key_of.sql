-- The key that a lock id holds, live or expired, and whether anybody at all wants to hear of freed keys.
SELECT key, EXISTS (SELECT 1 FROM listeners) FROM locks WHERE lock_id = ?1
