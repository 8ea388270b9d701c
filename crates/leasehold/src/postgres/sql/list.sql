SELECT h.user_key, h.lock_id, h.fence, h.acquired_at_ms, h.expires_at_ms, h.details::text, h.key,
  h.class, h.permits, h.slot, q.waiting
FROM ({{held}}) AS h LEFT JOIN (
  SELECT q.key, count(*) AS waiting FROM {{line}} AS q WHERE q.until_ms > {{now_us}} / 1000 GROUP BY q.key
) AS q ON q.key = h.key
WHERE h.expires_at_ms > {{now_us}} / 1000 - {{tolerance_ms}}
  AND starts_with(h.user_key, $1)
  AND (h.key COLLATE "C", h.fence COLLATE "C") > (coalesce($2, ''), coalesce($3, ''))
ORDER BY h.key COLLATE "C", h.fence COLLATE "C"
LIMIT $4
