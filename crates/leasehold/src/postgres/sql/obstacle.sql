-- The sessions that hold on to a lock's advisory lock or row.
SELECT g.locktype = 'advisory', a.pid, a.application_name
FROM (
  SELECT coalesce(
    $1, (SELECT l.key FROM {{locks}} AS l WHERE l.lock_id = $2), (SELECT g.key FROM {{grants}} AS g WHERE g.lock_id = $2),
    (SELECT q.key FROM {{line}} AS q WHERE q.lock_id = $2)
  ) AS key
) AS wanted
  LEFT JOIN {{locks}} AS l ON l.key = wanted.key
  JOIN pg_locks AS g ON g.granted AND (
    (g.locktype = 'advisory' AND g.objsubid = 1 AND (g.classid::bigint << 32 | g.objid::bigint) = hashtext(wanted.key)
      AND g.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
    OR (g.locktype = 'transactionid' AND g.transactionid = l.xmax)
  )
  JOIN pg_stat_activity AS a ON a.pid = g.pid
WHERE a.pid <> pg_backend_pid()
ORDER BY a.xact_start
