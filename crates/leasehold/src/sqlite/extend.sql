-- Rules 1, 4 and 7: only the owner, only while it is live (?2 is now - tolerance), replacing what was left.
UPDATE locks SET expires_at_ms = ?3
WHERE lock_id = ?1 AND expires_at_ms > ?2
