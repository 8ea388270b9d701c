-- The place of a lock id in the line of a key, if it is still its own at the time ?3.
SELECT key, lock_id, since_ms, until_ms, holder, metadata, mode, permits, called FROM line
WHERE lock_id = ?1 AND key = ?2 AND until_ms > ?3
