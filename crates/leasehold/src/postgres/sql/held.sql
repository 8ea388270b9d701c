-- All locks, of every class, live and dead. Those in a table of their own count as long as their placeholder is there.
  SELECT l.lock_id, l.key, 'x'::text AS class, 1 AS permits, NULL::integer AS slot, l.fence, l.acquired_at_ms, l.expires_at_ms,
    l.user_key, l.details
  FROM {{locks}} AS l WHERE NOT starts_with(l.lock_id, {{placeholder}})
  UNION ALL SELECT g.lock_id, g.key, g.class, g.permits, g.slot, g.fence, g.acquired_at_ms, g.expires_at_ms,
    g.user_key, g.details
  FROM {{grants}} AS g JOIN {{locks}} AS l ON l.key = g.key
  WHERE starts_with(l.lock_id, {{placeholder}} || g.class)
