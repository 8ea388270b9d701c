-- Those whose place is still theirs at the time ?2, the first ?3 of them.
SELECT key, lock_id, since_ms, until_ms, holder, metadata, mode, permits, called FROM line
WHERE key = ?1 AND until_ms > ?2
ORDER BY place
LIMIT ?3
