-- A new place at the end of the line.
INSERT INTO line (key, lock_id, since_ms, until_ms, holder, metadata, mode, permits, called, place)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1 + ifnull((SELECT max(place) FROM line WHERE key = ?1), 0))
