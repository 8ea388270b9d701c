-- The grant of a lock id, live or dead, if its placeholder is there.
SELECT grants.key, grants.lock_id, grants.fence, grants.acquired_at_ms, grants.expires_at_ms, grants.holder,
       grants.metadata, grants.mode, grants.permits, grants.slot
FROM grants JOIN locks ON locks.key = grants.key AND locks.lock_id = grants.placeholder
WHERE grants.lock_id = ?1
