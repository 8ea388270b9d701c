WHERE l.expires_at_ms > {{now_us}} / 1000 - {{tolerance_ms}}
  AND starts_with(l.user_key, $1)
  AND l.key COLLATE "C" > coalesce($2, '')
ORDER BY l.key COLLATE "C"
LIMIT $3
