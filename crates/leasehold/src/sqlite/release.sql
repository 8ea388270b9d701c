-- Rules 1 and 4: only the owner, only while it is live; ?2 is now - tolerance. (No RETURNING: SQLite would make a temporary
-- table for it, which costs more than all the rest.)
UPDATE locks SET lock_id = NULL, holder = NULL, metadata = NULL
WHERE lock_id = ?1 AND expires_at_ms > ?2
