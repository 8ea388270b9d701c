-- Rule 4: one step. What may be granted was decided in the same transaction.
INSERT INTO locks (key, lock_id, fence, acquired_at_ms, expires_at_ms, holder, metadata)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (key) DO UPDATE SET
    lock_id = excluded.lock_id,
    fence = excluded.fence,
    acquired_at_ms = excluded.acquired_at_ms,
    expires_at_ms = excluded.expires_at_ms,
    holder = excluded.holder,
    metadata = excluded.metadata
