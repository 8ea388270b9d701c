-- What whoever has a lock that is not as simple as it is nearly always, or a place in line, does with it.

-- The advisory lock of a key, for somebody who can do without. A session that keeps it must not keep locks from being released.
CREATE OR REPLACE FUNCTION {{guard}}(guarded_key text, patient boolean) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  patience text := current_setting('lock_timeout');
  had boolean := pg_try_advisory_xact_lock(hashtext(guarded_key));
BEGIN
  IF had OR NOT patient THEN
    RETURN had;
  END IF;
  BEGIN
    IF patience::interval > '1s'::interval THEN
      PERFORM set_config('lock_timeout', '1s', true);
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext(guarded_key));
    had := true;
  EXCEPTION WHEN lock_not_available THEN
    had := false;
  END;
  PERFORM set_config('lock_timeout', patience, true);
  RETURN had;
END $$;

-- Makes the placeholder of a key last as long as the last of its grants, and no longer. Its row is ours. Tells whether anybody is
-- left.
CREATE OR REPLACE FUNCTION {{settle}}(settled_key text, now_ms bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  last_ms bigint;
BEGIN
  SELECT max(g.expires_at_ms) INTO last_ms FROM {{grants}} AS g WHERE g.key = settled_key;
  IF last_ms > now_ms - {{tolerance_ms}} THEN
    UPDATE {{locks}} AS l SET expires_at_ms = last_ms WHERE l.key = settled_key;
    RETURN true;
  END IF;
  DELETE FROM {{locks}} AS l WHERE l.key = settled_key;
  DELETE FROM {{grants}} AS g WHERE g.key = settled_key;
  RETURN false;
END $$;

-- What release does about everything but an exclusive lock for which nobody stands in line. Whoever is not patient waits for nobody,
-- and may get no answer.
--
-- The advisory lock comes before the row, as for those who acquire. A release without it is a release too, and everybody is told.
CREATE OR REPLACE FUNCTION {{release_kind}}(released_id text, patient boolean) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  name text;
  held {{locks}}%ROWTYPE;
  gone {{grants}}%ROWTYPE;
  waits boolean := false;
  in_line boolean;
  guarded boolean := false;
  now_ms bigint;
  answer integer := 0;
BEGIN
  SELECT l.key INTO name FROM {{locks}} AS l WHERE l.lock_id = released_id;
  IF name IS NULL THEN
    SELECT g.key INTO name FROM {{grants}} AS g WHERE g.lock_id = released_id;
  END IF;
  IF name IS NULL THEN
    SELECT q.key INTO name FROM {{line}} AS q WHERE q.lock_id = released_id;
    waits := name IS NOT NULL;
  END IF;
  IF name IS NULL THEN
    RETURN 0;
  END IF;
  in_line := waits OR EXISTS (SELECT FROM {{line}} AS q WHERE q.key = name);
  IF in_line THEN
    guarded := {{guard}}(name, patient);
    IF NOT guarded AND NOT patient THEN
      RETURN NULL;
    END IF;
    -- Its acquire may have been granted while this waited for it.
    IF waits AND (EXISTS (SELECT FROM {{locks}} AS l WHERE l.lock_id = released_id)
        OR EXISTS (SELECT FROM {{grants}} AS g WHERE g.lock_id = released_id)) THEN
      RETURN {{release_kind}}(released_id, patient);
    END IF;
  END IF;
  IF waits THEN
    SELECT * INTO held FROM {{locks}} AS l WHERE l.key = name;
  ELSIF patient THEN
    SELECT * INTO held FROM {{locks}} AS l WHERE l.key = name FOR UPDATE;
  ELSE
    SELECT * INTO held FROM {{locks}} AS l WHERE l.key = name FOR UPDATE SKIP LOCKED;
    IF held.key IS NULL AND EXISTS (SELECT FROM {{locks}} AS l WHERE l.key = name) THEN
      RETURN NULL;
    END IF;
  END IF;
  now_ms := {{now_us}} / 1000;
  IF waits THEN
    DELETE FROM {{line}} AS q WHERE q.lock_id = released_id;
  ELSIF held.lock_id = released_id THEN
    DELETE FROM {{locks}} AS l WHERE l.key = name;
    answer := CASE WHEN held.expires_at_ms > now_ms - {{tolerance_ms}} THEN 1 ELSE -1 END;
  ELSE
    DELETE FROM {{grants}} AS g WHERE g.lock_id = released_id RETURNING * INTO gone;
    IF gone.key IS NOT NULL AND starts_with(held.lock_id, {{placeholder}} || gone.class) THEN
      answer := CASE WHEN gone.expires_at_ms > now_ms - {{tolerance_ms}} THEN 1 ELSE -1 END;
      PERFORM {{settle}}(name, now_ms);
    ELSIF gone.expires_at_ms <= now_ms - {{tolerance_ms}} THEN
      answer := -1;
    END IF;
  END IF;
  IF guarded THEN
    IF {{call_next}}(name, now_ms) THEN
      RETURN answer;
    END IF;
  END IF;
  -- Nobody is in line; or somebody is who could not be called, and must hear of it like everybody.
  IF answer <> 0 OR in_line AND (NOT guarded OR {{class_of}}(held.lock_id, held.expires_at_ms, now_ms) = '') THEN
    PERFORM {{tell_freed}}(name);
  END IF;
  RETURN answer;
END $$;

-- What extend does about everything but an exclusive lock. The placeholder is what others see, so that its time decides whether a
-- guard is needed, and how soon the answer must be there. It is written every time: whoever sees less of others than it should must
-- find that it was changed.
CREATE OR REPLACE FUNCTION {{extend_kind}}(
  extended_id text, ttl_ms bigint, guarded boolean, OUT until_ms bigint, OUT left_ms bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held {{locks}}%ROWTYPE;
  grant_now {{grants}}%ROWTYPE;
  name text;
  now_ms bigint;
BEGIN
  SELECT g.key INTO name FROM {{grants}} AS g WHERE g.lock_id = extended_id;
  SELECT * INTO held FROM {{locks}} AS l WHERE l.key = name;
  guarded := guarded OR coalesce(held.expires_at_ms <= {{now_us}} / 1000, false);
  IF guarded THEN
    PERFORM pg_advisory_xact_lock(hashtext(name));
  END IF;
  SELECT * INTO held FROM {{locks}} AS l WHERE l.key = name FOR UPDATE;
  SELECT * INTO grant_now FROM {{grants}} AS g WHERE g.lock_id = extended_id FOR UPDATE;
  now_ms := {{now_us}} / 1000;
  IF grant_now.key IS NULL THEN
    until_ms := 0;
  ELSIF grant_now.expires_at_ms <= now_ms - {{tolerance_ms}} THEN
    until_ms := -1;
  ELSIF starts_with(held.lock_id, {{placeholder}} || grant_now.class) IS NOT TRUE THEN
    until_ms := 0;
  ELSIF guarded OR held.expires_at_ms > now_ms THEN
    UPDATE {{grants}} AS g SET expires_at_ms = now_ms + ttl_ms WHERE g.lock_id = extended_id;
    PERFORM {{settle}}(name, now_ms);
    until_ms := now_ms + ttl_ms;
    IF NOT guarded THEN
      left_ms := held.expires_at_ms - now_ms;
    END IF;
  END IF;
END $$;

-- Extends many of all classes.
CREATE OR REPLACE FUNCTION {{extend_mixed}}(
  extended_ids text[], ttls_ms bigint[], OUT until_ms bigint[], OUT left_ms bigint[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  there text[];
  free text[];
  free_until bigint[];
  free_covered bigint[];
  names text[];
  now_ms bigint;
BEGIN
  there := ARRAY(
    SELECT l.lock_id FROM {{locks}} AS l WHERE l.lock_id = ANY (extended_ids)
    UNION ALL SELECT g.lock_id FROM {{grants}} AS g JOIN {{locks}} AS l ON l.key = g.key
      WHERE g.lock_id = ANY (extended_ids) AND starts_with(l.lock_id, {{placeholder}} || g.class)
  );
  SELECT array_agg(l.lock_id), array_agg(l.expires_at_ms), array_agg(l.expires_at_ms) INTO free, free_until, free_covered FROM (
    SELECT * FROM {{locks}} AS l WHERE l.lock_id = ANY (extended_ids) FOR UPDATE SKIP LOCKED
  ) AS l;
  SELECT free || array_agg(c.lock_id), free_until || array_agg(c.expires_at_ms), free_covered || array_agg(c.covered_ms),
    array_agg(DISTINCT c.key)
  INTO free, free_until, free_covered, names
  FROM (
    SELECT g.key, g.lock_id, g.expires_at_ms, l.expires_at_ms AS covered_ms
    FROM {{locks}} AS l JOIN {{grants}} AS g ON g.key = l.key
    WHERE g.lock_id = ANY (extended_ids) AND starts_with(l.lock_id, {{placeholder}} || g.class)
    FOR UPDATE SKIP LOCKED
  ) AS c;
  now_ms := {{now_us}} / 1000;
  UPDATE {{locks}} AS l SET expires_at_ms = now_ms + w.ttl_ms FROM unnest(extended_ids, ttls_ms) AS w(id, ttl_ms)
    WHERE l.lock_id = w.id AND l.lock_id = ANY (free) AND l.expires_at_ms > now_ms;
  UPDATE {{grants}} AS g SET expires_at_ms = now_ms + w.ttl_ms
    FROM unnest(extended_ids, ttls_ms) AS w(id, ttl_ms), unnest(free, free_covered) AS f(id, covered_ms)
    WHERE g.lock_id = w.id AND f.id = w.id AND f.covered_ms > now_ms AND g.expires_at_ms > now_ms - {{tolerance_ms}};
  UPDATE {{locks}} AS l SET expires_at_ms = (SELECT max(g.expires_at_ms) FROM {{grants}} AS g WHERE g.key = l.key)
    WHERE l.key = ANY (names);
  SELECT
    array_agg(CASE
      WHEN f.until_ms <= now_ms - {{tolerance_ms}} THEN -1
      WHEN f.covered_ms > now_ms THEN now_ms + w.ttl_ms
      WHEN w.id <> ALL (there) THEN 0
    END ORDER BY w.number),
    array_agg(
      CASE WHEN f.covered_ms > now_ms AND f.until_ms > now_ms - {{tolerance_ms}} THEN f.covered_ms - now_ms END ORDER BY w.number
    )
  INTO until_ms, left_ms
  FROM unnest(extended_ids, ttls_ms) WITH ORDINALITY AS w(id, ttl_ms, number)
    LEFT JOIN unnest(free, free_until, free_covered) AS f(id, until_ms, covered_ms) ON f.id = w.id;
END $$;

-- The records that were ended, or nothing.
CREATE OR REPLACE FUNCTION {{force_release}}(wanted_key text, only_fence text)
RETURNS TABLE(
  lock_id text, key text, class text, permits integer, slot integer, fence text, acquired_at_ms bigint, expires_at_ms bigint,
  user_key text, details jsonb
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held {{locks}}%ROWTYPE;
  one record;
  class_now text;
  now_ms bigint;
  ended boolean := false;
BEGIN
  {{prepare}}
  PERFORM pg_advisory_xact_lock(hashtext(wanted_key));
  SELECT * INTO held FROM {{locks}} AS l WHERE l.key = wanted_key FOR UPDATE;
  now_ms := {{now_us}} / 1000;
  class_now := {{class_of}}(held.lock_id, held.expires_at_ms, now_ms);
  FOR one IN
    SELECT h.* FROM ({{held}}) AS h
    WHERE h.key = wanted_key AND h.class = class_now AND coalesce(h.fence = only_fence, true)
      AND h.expires_at_ms > now_ms - {{tolerance_ms}}
    ORDER BY h.fence COLLATE "C"
  LOOP
    ended := true;
    PERFORM pg_notify({{channel}}, {{force_released}} || one.fence || left(one.user_key, {{longest_key}}));
    RETURN QUERY SELECT one.lock_id, one.key, one.class, one.permits, one.slot, one.fence, one.acquired_at_ms, one.expires_at_ms,
      one.user_key, one.details;
    IF class_now = 'x' THEN
      DELETE FROM {{locks}} AS l WHERE l.key = wanted_key;
    ELSE
      DELETE FROM {{grants}} AS g WHERE g.lock_id = one.lock_id;
    END IF;
  END LOOP;
  IF class_now NOT IN ('', 'x') THEN
    PERFORM {{settle}}(wanted_key, now_ms);
  END IF;
  IF NOT {{call_next}}(wanted_key, now_ms) AND ended THEN
    PERFORM {{tell_freed}}(wanted_key);
  END IF;
END $$;
