-- Rows of locks whose time has long been over, and places in line whose lease has ended.
WITH locks AS (
  DELETE FROM {{locks}} WHERE key IN (
    SELECT l.key FROM {{locks}} AS l
    WHERE l.expires_at_ms <= (SELECT {{now_us}} / 1000 - $1)
    ORDER BY l.expires_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED
  ) RETURNING 1
), grants AS (
  DELETE FROM {{grants}} WHERE lock_id IN (
    SELECT g.lock_id FROM {{grants}} AS g
    WHERE g.expires_at_ms <= (SELECT {{now_us}} / 1000 - $1)
    LIMIT $2 FOR UPDATE SKIP LOCKED
  ) RETURNING 1
), places AS (
  DELETE FROM {{line}} WHERE lock_id IN (
    SELECT q.lock_id FROM {{line}} AS q
    WHERE q.until_ms <= (SELECT {{now_us}} / 1000)
    LIMIT $2 FOR UPDATE SKIP LOCKED
  ) RETURNING 1
)
SELECT (SELECT count(*) FROM locks) + (SELECT count(*) FROM grants) + (SELECT count(*) FROM places)
