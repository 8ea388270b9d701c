-- Live grants in the order of their keys and fences, from the key ?2 on and after (?3, ?4); the caller stops where the
-- prefix or the page does, and leaves out placeholders.
SELECT key, lock_id, fence, acquired_at_ms, expires_at_ms, holder, metadata, 'exclusive', NULL, NULL FROM locks
WHERE lock_id IS NOT NULL AND expires_at_ms > ?1 AND key >= ?2 AND (key, fence) > (?3, ?4)
UNION ALL
SELECT grants.key, grants.lock_id, grants.fence, grants.acquired_at_ms, grants.expires_at_ms, grants.holder,
       grants.metadata, grants.mode, grants.permits, grants.slot
FROM grants JOIN locks ON locks.key = grants.key AND locks.lock_id = grants.placeholder
WHERE grants.expires_at_ms > ?1 AND grants.key >= ?2 AND (grants.key, grants.fence) > (?3, ?4)
ORDER BY 1, 3
