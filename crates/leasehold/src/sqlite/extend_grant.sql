-- Rules 1, 4 and 7, for one of many: only the owner, only while it is live (?2 is now - tolerance) and its placeholder is
-- there. The placeholder is moved along in the same transaction.
UPDATE grants SET expires_at_ms = ?3
WHERE lock_id = ?1 AND expires_at_ms > ?2
  AND EXISTS (SELECT 1 FROM locks WHERE locks.key = grants.key AND locks.lock_id = grants.placeholder)
