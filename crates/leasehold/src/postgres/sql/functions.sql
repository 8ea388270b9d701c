-- A lock is held while expires_at_ms > now - {{tolerance_ms}}. Time is read after every wait.
--
-- Every name ends in the version of the functions. A change to any of them is a new version:
-- programs of the old one go on with theirs. A test says what to do.
--
-- Here is the way of an exclusive lock for which nobody stands in line. All other ways begin here too, and go on in kinds.sql and
-- owned.sql.

-- Tells those who wait for a key that it is free. Whoever waits shares a lock on the key's number, so that nobody is told if
-- nobody waits: telling makes commits queue up behind each other. There are not many numbers: the server has room for some
-- thousand locks, for everybody.
--
-- Whoever shares in the number may have joined the line after it was looked at. It is called then, or told like everybody if
-- somebody else is about to decide about the key.
CREATE OR REPLACE FUNCTION {{tell_freed}}(freed_key text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF pg_try_advisory_xact_lock({{interest}}, hashtext(freed_key) & {{shares}}) THEN
    RETURN;
  END IF;
  IF EXISTS (SELECT FROM {{line}} AS q WHERE q.key = freed_key) AND pg_try_advisory_xact_lock(hashtext(freed_key)) THEN
    IF {{call_next}}(freed_key, {{now_us}} / 1000) THEN
      RETURN;
    END IF;
  END IF;
  PERFORM pg_notify({{channel}}, {{freed}} || freed_key);
END $$;

-- Grants the lock, or returns the record that stands. Classes are x: exclusive, s: shared, p: one of so many permits. What it does
-- about the line is i: ignore it, h: heed it, j: join it for the time of a lease.
CREATE OR REPLACE FUNCTION {{acquire}}(
  wanted_key text, wanted_id text, ttl_ms bigint, wanted_user_key text, counter text, wanted_details jsonb,
  same_holder text, held_longer_than_ms bigint, stuck_fence text,
  wanted_class text, wanted_permits integer, wanted_line text, lease_ms bigint,
  OUT granted boolean, OUT held_id text, OUT held_fence text, OUT held_since_ms bigint, OUT held_until_ms bigint,
  OUT held_details text, OUT now_us bigint, OUT held_class text, OUT held_permits integer, OUT held_slot integer,
  OUT holders integer, OUT place integer
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held {{locks}}%ROWTYPE;
  taken boolean;
  plain boolean := wanted_class = 'x';
  next_fence bigint;
  elsewhere_until bigint;
BEGIN
  {{prepare}}
  -- Whoever is refused waits for nobody and writes nothing: the first look is before the wait for the advisory lock, and the row
  -- is locked, which is a write, only to be taken over. After each wait all is decided again.
  FOR look IN 1..3 LOOP
    EXIT WHEN NOT plain;
    -- To try is an expression, which costs less than the statement that waits.
    IF look = 2 AND NOT pg_try_advisory_xact_lock(hashtext(wanted_key)) THEN
      PERFORM pg_advisory_xact_lock(hashtext(wanted_key));
    END IF;
    IF look < 3 THEN
      SELECT * INTO held FROM {{locks}} AS l WHERE l.key = wanted_key;
    ELSE
      SELECT * INTO held FROM {{locks}} AS l WHERE l.key = wanted_key FOR UPDATE;
    END IF;
    now_us := {{now_us}};
    CONTINUE WHEN look = 1 AND (held.key IS NULL OR held.lock_id = wanted_id);
    EXIT WHEN held.key IS NULL;
    taken := held.expires_at_ms > now_us / 1000 - {{tolerance_ms}};
    plain := NOT taken OR held.lock_id = wanted_id OR (wanted_line <> 'j' AND NOT starts_with(held.lock_id, {{placeholder}}));
    IF plain AND taken AND (held.lock_id = wanted_id OR NOT (
      coalesce(held.details->>'lockId' = held.lock_id AND held.details->>'holder' = same_holder, false)
      OR coalesce(held.acquired_at_ms < now_us / 1000 - held_longer_than_ms, false)
      OR coalesce(held.fence = stuck_fence, false)
    )) THEN
      granted := false;
      held_id := held.lock_id;
      held_fence := held.fence;
      held_since_ms := held.acquired_at_ms;
      held_until_ms := held.expires_at_ms;
      held_details := held.details::text;
      held_class := 'x';
      holders := 1;
      RETURN;
    END IF;
  END LOOP;

  -- One look at all that must not be there if this is to be as simple as it is nearly always.
  IF plain THEN
    SELECT (SELECT l.expires_at_ms FROM {{locks}} AS l WHERE l.lock_id = wanted_id AND l.key <> wanted_key),
      NOT EXISTS (SELECT FROM {{line}} AS q WHERE q.key = wanted_key)
        AND NOT EXISTS (SELECT FROM {{line}} AS q WHERE q.lock_id = wanted_id)
        AND NOT EXISTS (SELECT FROM {{grants}} AS g WHERE g.lock_id = wanted_id)
    INTO elsewhere_until, plain;
  END IF;
  IF NOT plain THEN
    SELECT a.* INTO granted, held_id, held_fence, held_since_ms, held_until_ms, held_details, now_us, held_class, held_permits,
      held_slot, holders, place
    FROM {{acquire_kind}}(
      wanted_key, wanted_id, ttl_ms, wanted_user_key, counter, wanted_details, same_holder, held_longer_than_ms, stuck_fence,
      wanted_class, wanted_permits, wanted_line, lease_ms
    ) AS a;
    RETURN;
  END IF;
  IF held.key IS NOT NULL AND taken THEN
    PERFORM pg_notify({{channel}}, {{stolen}} || held.fence || left(held.user_key, {{longest_key}}));
  END IF;
  IF elsewhere_until > now_us / 1000 - {{tolerance_ms}} THEN
    RAISE EXCEPTION 'the lock id belongs to the lock of another key' USING ERRCODE = {{lock_id_in_use}},
      HINT = 'make a new lock id for each lock';
  ELSIF elsewhere_until IS NOT NULL THEN
    DELETE FROM {{locks}} AS l WHERE l.lock_id = wanted_id AND l.key <> wanted_key AND l.expires_at_ms = elsewhere_until;
  END IF;

  -- Never below the clock, in units of 100 microseconds: a server that lost its last writes repeats no fence.
  INSERT INTO {{fences}} AS f (fence_key, fence, key_debug) VALUES (counter, {{clock_fence}}, wanted_user_key)
    ON CONFLICT (fence_key) DO UPDATE SET fence = greatest({{after_last}}, excluded.fence)
    RETURNING f.fence INTO next_fence;
  IF next_fence > {{highest_fence}} THEN
    RAISE EXCEPTION 'the fence of this key is beyond the highest one' USING ERRCODE = {{fence_too_high}},
      HINT = 'the clock of the server or the fence counter of the key is wrong; go on under a new key';
  END IF;

  granted := true;
  held_id := wanted_id;
  held_fence := lpad(next_fence::text, {{fence_digits}}, '0');
  held_since_ms := now_us / 1000;
  held_until_ms := now_us / 1000 + ttl_ms;
  INSERT INTO {{locks}} AS l (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, details)
    VALUES (wanted_key, wanted_id, held_until_ms, held_since_ms, held_fence, wanted_user_key, wanted_details)
    ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
      acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key,
      details = excluded.details;
  -- Whoever watches has this lock alone, so that nobody is told if nobody watches, and those who acquire share it.
  IF NOT pg_try_advisory_xact_lock_shared({{interest}}, {{watched}}) THEN
    PERFORM pg_notify({{channel}}, {{granted}} || held_fence || coalesce(wanted_details->>'holder', '') || chr(10)
      || left(wanted_user_key, {{longest_key}}));
  END IF;
END $$;

-- 1: released, 0: there is no such lock, -1: its time was over. If anybody is in line, that one is called, which takes more.
CREATE OR REPLACE FUNCTION {{release}}(released_id text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  gone {{locks}}%ROWTYPE;
BEGIN
  {{prepare}}
  -- One row at most, so that its key is looked for in the line by an index, whatever the server believes of that table.
  DELETE FROM {{locks}} AS l
    WHERE l.lock_id = released_id AND (SELECT true FROM {{line}} AS q WHERE q.key = l.key LIMIT 1) IS NULL
    RETURNING * INTO gone;
  IF gone.key IS NULL THEN
    RETURN {{release_kind}}(released_id, true);
  END IF;
  -- As nobody wants to hear of it nearly always, this is asked here and not in a function.
  IF NOT pg_try_advisory_xact_lock({{interest}}, hashtext(gone.key) & {{shares}}) THEN
    PERFORM {{tell_freed}}(gone.key);
  END IF;
  IF gone.expires_at_ms > {{now_us}} / 1000 - {{tolerance_ms}} THEN
    RETURN 1;
  END IF;
  RETURN -1;
END $$;

-- Releases many, and waits for nobody: an answer for each, in their order, as of a release. Null: somebody else uses the row, or
-- decides about the key.
CREATE OR REPLACE FUNCTION {{release_many}}(released_ids text[]) RETURNS integer[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  free text[];
  done text[] := '{}';
  answers integer[] := '{}';
  gone {{locks}}%ROWTYPE;
  left_id text;
BEGIN
  {{prepare}}
  free := ARRAY(
    SELECT l.lock_id FROM {{locks}} AS l
    WHERE l.lock_id = ANY (released_ids) AND NOT EXISTS (SELECT FROM {{line}} AS q WHERE q.key = l.key)
    FOR UPDATE OF l SKIP LOCKED
  );
  FOR gone IN DELETE FROM {{locks}} AS l WHERE l.lock_id = ANY (free) RETURNING * LOOP
    PERFORM {{tell_freed}}(gone.key);
    done := done || gone.lock_id;
    answers := answers || CASE WHEN gone.expires_at_ms > {{now_us}} / 1000 - {{tolerance_ms}} THEN 1 ELSE -1 END;
  END LOOP;
  IF cardinality(done) < cardinality(released_ids) THEN
    FOREACH left_id IN ARRAY released_ids LOOP
      CONTINUE WHEN left_id = ANY (free);
      done := done || left_id;
      answers := answers || {{release_kind}}(left_id, false);
    END LOOP;
  END IF;
  RETURN ARRAY(
    SELECT d.answer FROM unnest(released_ids) WITH ORDINALITY AS w(id, number)
      LEFT JOIN unnest(done, answers) AS d(id, answer) ON d.id = w.id
    ORDER BY w.number
  );
END $$;

-- until_ms: the new expiry, 0: there is no such lock, -1: its time is over, null: its time ended while this waited, ask guarded.
-- left_ms: the answer counts only if it is there so soon after it was asked for; null: whenever it comes.
--
-- Whoever acquires decides by what is committed, and the other library takes no lock on the row: it could find this lock dead and
-- overwrite it while the commit of this extend is on its way. A guarded extend keeps it out by the advisory lock of the key. One
-- that is committed before the lock's time was over needs no guard, because nobody can have found it dead: the asker can tell.
CREATE OR REPLACE FUNCTION {{extend}}(
  extended_id text, ttl_ms bigint, guarded boolean, OUT until_ms bigint, OUT left_ms bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held {{locks}}%ROWTYPE;
  now_ms bigint;
BEGIN
  {{prepare}}
  SELECT * INTO held FROM {{locks}} AS l WHERE l.lock_id = extended_id;
  IF held.key IS NULL THEN
    SELECT e.* INTO until_ms, left_ms FROM {{extend_kind}}(extended_id, ttl_ms, guarded) AS e;
    RETURN;
  END IF;
  guarded := guarded OR coalesce(held.expires_at_ms <= {{now_us}} / 1000, false);
  IF guarded THEN
    PERFORM pg_advisory_xact_lock(hashtext(held.key));
  END IF;
  SELECT * INTO held FROM {{locks}} AS l WHERE l.lock_id = extended_id FOR UPDATE;
  now_ms := {{now_us}} / 1000;
  IF held.key IS NULL THEN
    until_ms := 0;
  ELSIF held.expires_at_ms <= now_ms - {{tolerance_ms}} THEN
    until_ms := -1;
  ELSIF guarded OR held.expires_at_ms > now_ms THEN
    UPDATE {{locks}} AS l SET expires_at_ms = now_ms + ttl_ms WHERE l.lock_id = extended_id;
    until_ms := now_ms + ttl_ms;
    IF NOT guarded THEN
      left_ms := held.expires_at_ms - now_ms;
    END IF;
  END IF;
END $$;

-- Extends many without a guard, and waits for nobody: answers for each, in their order, as of an extend. Null: somebody else uses
-- the row, or its time has just ended.
CREATE OR REPLACE FUNCTION {{extend_many}}(
  extended_ids text[], ttls_ms bigint[], OUT until_ms bigint[], OUT left_ms bigint[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  there text[];
  free text[];
  free_until bigint[];
  now_ms bigint;
BEGIN
  {{prepare}}
  there := ARRAY(SELECT l.lock_id FROM {{locks}} AS l WHERE l.lock_id = ANY (extended_ids));
  IF cardinality(there) < cardinality(extended_ids) THEN
    SELECT e.* INTO until_ms, left_ms FROM {{extend_mixed}}(extended_ids, ttls_ms) AS e;
    RETURN;
  END IF;
  SELECT array_agg(l.lock_id), array_agg(l.expires_at_ms) INTO free, free_until FROM (
    SELECT * FROM {{locks}} AS l WHERE l.lock_id = ANY (extended_ids) FOR UPDATE SKIP LOCKED
  ) AS l;
  now_ms := {{now_us}} / 1000;
  UPDATE {{locks}} AS l SET expires_at_ms = now_ms + w.ttl_ms FROM unnest(extended_ids, ttls_ms) AS w(id, ttl_ms)
    WHERE l.lock_id = w.id AND l.lock_id = ANY (free) AND l.expires_at_ms > now_ms;
  SELECT
    array_agg(CASE
      WHEN f.until_ms > now_ms THEN now_ms + w.ttl_ms
      WHEN f.until_ms <= now_ms - {{tolerance_ms}} THEN -1
    END ORDER BY w.number),
    array_agg(CASE WHEN f.until_ms > now_ms THEN f.until_ms - now_ms END ORDER BY w.number)
  INTO until_ms, left_ms
  FROM unnest(extended_ids, ttls_ms) WITH ORDINALITY AS w(id, ttl_ms, number)
    LEFT JOIN unnest(free, free_until) AS f(id, until_ms) ON f.id = w.id;
END $$;
