-- The key that a lock id holds, live or expired.
SELECT key FROM locks WHERE lock_id = ?1
