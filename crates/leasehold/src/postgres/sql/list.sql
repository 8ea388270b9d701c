WHERE l.expires_at_ms > floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - 1000
  AND starts_with(l.user_key, $1)
  AND l.key COLLATE "C" > coalesce($2, '')
ORDER BY l.key COLLATE "C"
LIMIT $3
