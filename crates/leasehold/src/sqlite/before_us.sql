-- How many are before a lock id in the line of a key at the time ?3.
SELECT count(*) FROM line
WHERE key = ?1 AND until_ms > ?3 AND place < (SELECT place FROM line WHERE lock_id = ?2)
