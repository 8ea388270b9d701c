-- Rules 1 and 4: only the owner, only while it is live; ?2 is now - tolerance.
UPDATE locks SET lock_id = NULL, holder = NULL, metadata = NULL
WHERE lock_id = ?1 AND expires_at_ms > ?2
RETURNING key
