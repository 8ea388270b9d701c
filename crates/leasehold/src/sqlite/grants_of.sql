-- The grants of a key beside the placeholder that it has, the oldest ?4 of those that expire after ?3.
SELECT key, lock_id, fence, acquired_at_ms, expires_at_ms, holder, metadata, mode, permits, slot FROM grants
WHERE key = ?1 AND placeholder = ?2 AND expires_at_ms > ?3
ORDER BY fence
LIMIT ?4
