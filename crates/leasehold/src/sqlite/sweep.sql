-- Rule 8: forgets who held locks that are long dead (?1 is the latest expiry of such), a few at a time.
-- Fences stay.
UPDATE locks SET lock_id = NULL, holder = NULL, metadata = NULL
WHERE key IN (SELECT key FROM locks WHERE lock_id IS NOT NULL AND expires_at_ms <= ?1 LIMIT 500)
