-- Who holds a key, the oldest grant first, and then who stands in line for it.
SELECT * FROM (
  SELECT h.user_key, h.lock_id, h.fence, h.acquired_at_ms, h.expires_at_ms, h.details::text, h.key,
    h.class, h.permits, h.slot, false AS waits
  FROM ({{held}}) AS h
  WHERE h.key = $1 AND h.expires_at_ms > {{now_us}} / 1000 - {{tolerance_ms}}
  ORDER BY h.fence COLLATE "C"
) AS holders
UNION ALL SELECT * FROM (
  SELECT q.user_key, q.lock_id, '', q.since_ms, q.until_ms, q.details::text, q.key,
    q.class, q.permits, NULL::integer, true
  FROM {{line}} AS q
  WHERE q.key = $1 AND q.until_ms > {{now_us}} / 1000
  ORDER BY q.place LIMIT 1000
) AS waiters
