-- Somebody holds a key together with others. The placeholder is written in the same transaction.
INSERT INTO grants (key, lock_id, fence, acquired_at_ms, expires_at_ms, holder, metadata, mode, permits, slot, placeholder)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
