-- Rule 8: forgets who held locks that are long dead (?1 is the latest expiry of such), a few at a time.
-- Fences stay, and so do times that make no sense: nobody is let in over them.
UPDATE locks SET lock_id = NULL, holder = NULL, metadata = NULL
WHERE key IN (SELECT key FROM locks WHERE lock_id IS NOT NULL AND expires_at_ms BETWEEN 0 AND ?1 LIMIT 500)
