-- A placeholder lasts as long as the longest of its grants. The one that ended at ?3 may have been that.
UPDATE locks SET expires_at_ms = (SELECT max(expires_at_ms) FROM grants WHERE key = ?1 AND placeholder = ?2)
WHERE key = ?1 AND lock_id = ?2 AND expires_at_ms <= ?3
