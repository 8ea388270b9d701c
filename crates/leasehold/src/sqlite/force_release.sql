-- Ends whatever is held; the caller has read in the same transaction what it was.
UPDATE locks SET lock_id = NULL, holder = NULL, metadata = NULL WHERE key = ?1
