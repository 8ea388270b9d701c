-- The row of a key, held or not.
SELECT key, lock_id, fence, acquired_at_ms, expires_at_ms, holder, metadata FROM locks WHERE key = ?1
