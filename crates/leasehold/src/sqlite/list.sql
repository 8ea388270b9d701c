-- Live rows in the order of their keys, from ?2 on or after ?3; the caller stops where the prefix does.
SELECT key, lock_id, fence, acquired_at_ms, expires_at_ms, holder, metadata FROM locks
WHERE lock_id IS NOT NULL AND expires_at_ms > ?1 AND key >= ?2 AND (?3 IS NULL OR key > ?3)
ORDER BY key
LIMIT ?4
