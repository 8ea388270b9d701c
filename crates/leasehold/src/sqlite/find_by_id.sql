-- The row that a lock id holds, live or expired.
SELECT key, lock_id, fence, acquired_at_ms, expires_at_ms, holder, metadata FROM locks WHERE lock_id = ?1
