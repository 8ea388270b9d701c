DELETE FROM {{locks}} WHERE key IN (
  SELECT l.key FROM {{locks}} AS l
  WHERE l.expires_at_ms <= floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - $1
  ORDER BY l.expires_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED
)
