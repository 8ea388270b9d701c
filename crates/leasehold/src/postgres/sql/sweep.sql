DELETE FROM {{locks}} WHERE key IN (
  SELECT l.key FROM {{locks}} AS l
  WHERE l.expires_at_ms <= (SELECT {{now_us}} / 1000 - $1)
  ORDER BY l.expires_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED
)
