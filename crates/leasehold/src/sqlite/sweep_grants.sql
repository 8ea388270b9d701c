-- Forgets grants that are long dead, and those whose placeholder is gone.
DELETE FROM grants
WHERE expires_at_ms <= ?1
   OR NOT EXISTS (SELECT 1 FROM locks WHERE locks.key = grants.key AND locks.lock_id = grants.placeholder)
