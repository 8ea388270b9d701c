-- A lock is held while expires_at_ms > now - 1000. Time is read after every wait.
--
-- Every name ends in the version of the functions. A change to any of them is a new version:
-- programs of the old one go on with theirs. A test says what to do.

-- Tells those who wait for a key that it is free. Whoever waits shares a lock on the key's number, so that nobody is told if
-- nobody waits: telling makes commits queue up behind each other. There are not many numbers: the server has room for some
-- thousand locks, for everybody.
CREATE OR REPLACE FUNCTION "public"."syncguard_locks_tell_freed_v1"(freed_key text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock(hashtext('leasehold:465267daef8a10ae80193616'), hashtext(freed_key) & 1023) THEN
    PERFORM pg_notify('leasehold:465267daef8a10ae80193616', 'F' || freed_key);
  END IF;
END $$;

-- Grants the lock, or returns the record that stands.
CREATE OR REPLACE FUNCTION "public"."syncguard_locks_acquire_v1"(
  wanted_key text, wanted_id text, ttl_ms bigint, wanted_user_key text, counter text, wanted_details jsonb,
  same_holder text, held_longer_than_ms bigint, stuck_fence text,
  OUT granted boolean, OUT held_id text, OUT held_fence text, OUT held_since_ms bigint, OUT held_until_ms bigint,
  OUT held_details text, OUT now_us bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held "public"."syncguard_locks"%ROWTYPE;
  taken boolean;
  next_fence bigint;
  elsewhere_until bigint;
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('lock_timeout') = '0' THEN
    PERFORM set_config('lock_timeout', '4s', true);
  END IF;
  -- Whoever is refused waits for nobody and writes nothing: the first look is before the wait for the advisory lock, and the row
  -- is locked, which is a write, only to be taken over. After each wait all is decided again.
  FOR look IN 1..3 LOOP
    IF look = 2 THEN
      PERFORM pg_advisory_xact_lock(hashtext(wanted_key));
    END IF;
    IF look < 3 THEN
      SELECT * INTO held FROM "public"."syncguard_locks" AS l WHERE l.key = wanted_key;
    ELSE
      SELECT * INTO held FROM "public"."syncguard_locks" AS l WHERE l.key = wanted_key FOR UPDATE;
    END IF;
    now_us := floor(extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint;
    CONTINUE WHEN look = 1 AND (held.key IS NULL OR held.lock_id = wanted_id);
    EXIT WHEN held.key IS NULL;
    taken := held.expires_at_ms > now_us / 1000 - 1000;
    IF taken AND (held.lock_id = wanted_id OR NOT (
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
      RETURN;
    END IF;
  END LOOP;
  IF held.key IS NOT NULL AND taken THEN
    PERFORM pg_notify('leasehold:465267daef8a10ae80193616', 'S' || held.fence || left(held.user_key, 512));
  END IF;

  SELECT l.expires_at_ms INTO elsewhere_until FROM "public"."syncguard_locks" AS l WHERE l.lock_id = wanted_id AND l.key <> wanted_key;
  IF elsewhere_until > now_us / 1000 - 1000 THEN
    RAISE EXCEPTION 'the lock id belongs to the lock of another key' USING ERRCODE = 'LH001',
      HINT = 'make a new lock id for each lock';
  ELSIF elsewhere_until IS NOT NULL THEN
    DELETE FROM "public"."syncguard_locks" AS l WHERE l.lock_id = wanted_id AND l.key <> wanted_key AND l.expires_at_ms = elsewhere_until;
  END IF;

  -- Never below the clock, in units of 100 microseconds: a server that lost its last writes repeats no fence.
  INSERT INTO "public"."syncguard_fence_counters" AS f (fence_key, fence, key_debug) VALUES (counter, now_us / 100, wanted_user_key)
    ON CONFLICT (fence_key) DO UPDATE SET fence = greatest(least(f.fence, 900000000000000) + 1, excluded.fence)
    RETURNING f.fence INTO next_fence;
  IF next_fence > 900000000000000 THEN
    RAISE EXCEPTION 'the fence of this key is beyond the highest one' USING ERRCODE = 'LH002',
      HINT = 'the clock of the server or the fence counter of the key is wrong; go on under a new key';
  END IF;

  granted := true;
  held_id := wanted_id;
  held_fence := lpad(next_fence::text, 15, '0');
  held_since_ms := now_us / 1000;
  held_until_ms := now_us / 1000 + ttl_ms;
  INSERT INTO "public"."syncguard_locks" AS l (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, details)
    VALUES (wanted_key, wanted_id, held_until_ms, held_since_ms, held_fence, wanted_user_key, wanted_details)
    ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
      acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key,
      details = excluded.details;
  -- Whoever watches has this lock alone, so that nobody is told if nobody watches, and those who acquire share it.
  IF NOT pg_try_advisory_xact_lock_shared(hashtext('leasehold:465267daef8a10ae80193616'), 1024) THEN
    PERFORM pg_notify('leasehold:465267daef8a10ae80193616', 'G' || held_fence || coalesce(wanted_details->>'holder', '') || chr(10)
      || left(wanted_user_key, 512));
  END IF;
END $$;

-- 1: released, 0: there is no such lock, -1: its time was over.
CREATE OR REPLACE FUNCTION "public"."syncguard_locks_release_v1"(released_id text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  gone "public"."syncguard_locks"%ROWTYPE;
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('lock_timeout') = '0' THEN
    PERFORM set_config('lock_timeout', '4s', true);
  END IF;
  DELETE FROM "public"."syncguard_locks" AS l WHERE l.lock_id = released_id RETURNING * INTO gone;
  IF gone.key IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM "public"."syncguard_locks_tell_freed_v1"(gone.key);
  IF gone.expires_at_ms > floor(extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint / 1000 - 1000 THEN
    RETURN 1;
  END IF;
  RETURN -1;
END $$;

-- Releases many, and waits for nobody: an answer for each, in their order, as of a release. Null: somebody else uses the row.
CREATE OR REPLACE FUNCTION "public"."syncguard_locks_release_many_v1"(released_ids text[]) RETURNS integer[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  there text[];
  free text[];
  live text[] := '{}';
  dead text[] := '{}';
  gone "public"."syncguard_locks"%ROWTYPE;
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('lock_timeout') = '0' THEN
    PERFORM set_config('lock_timeout', '4s', true);
  END IF;
  there := ARRAY(SELECT l.lock_id FROM "public"."syncguard_locks" AS l WHERE l.lock_id = ANY (released_ids));
  free := ARRAY(SELECT l.lock_id FROM "public"."syncguard_locks" AS l WHERE l.lock_id = ANY (released_ids) FOR UPDATE SKIP LOCKED);
  FOR gone IN DELETE FROM "public"."syncguard_locks" AS l WHERE l.lock_id = ANY (free) RETURNING * LOOP
    PERFORM "public"."syncguard_locks_tell_freed_v1"(gone.key);
    IF gone.expires_at_ms > floor(extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint / 1000 - 1000 THEN
      live := live || gone.lock_id;
    ELSE
      dead := dead || gone.lock_id;
    END IF;
  END LOOP;
  RETURN ARRAY(
    SELECT CASE WHEN w.id = ANY (live) THEN 1 WHEN w.id = ANY (dead) THEN -1 WHEN w.id <> ALL (there) THEN 0 END
    FROM unnest(released_ids) WITH ORDINALITY AS w(id, number) ORDER BY w.number
  );
END $$;

-- until_ms: the new expiry, 0: there is no such lock, -1: its time is over, null: its time ended while this waited, ask guarded.
-- left_ms: the answer counts only if it is there so soon after it was asked for; null: whenever it comes.
--
-- Whoever acquires decides by what is committed, and the other library takes no lock on the row: it could find this lock dead and
-- overwrite it while the commit of this extend is on its way. A guarded extend keeps it out by the advisory lock of the key. One
-- that is committed before the lock's time was over needs no guard, because nobody can have found it dead: the asker can tell.
CREATE OR REPLACE FUNCTION "public"."syncguard_locks_extend_v1"(
  extended_id text, ttl_ms bigint, guarded boolean, OUT until_ms bigint, OUT left_ms bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held "public"."syncguard_locks"%ROWTYPE;
  now_ms bigint;
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('lock_timeout') = '0' THEN
    PERFORM set_config('lock_timeout', '4s', true);
  END IF;
  SELECT * INTO held FROM "public"."syncguard_locks" AS l WHERE l.lock_id = extended_id;
  guarded := guarded OR coalesce(held.expires_at_ms <= floor(extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint / 1000, false);
  IF guarded THEN
    PERFORM pg_advisory_xact_lock(hashtext(held.key));
  END IF;
  SELECT * INTO held FROM "public"."syncguard_locks" AS l WHERE l.lock_id = extended_id FOR UPDATE;
  now_ms := floor(extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint / 1000;
  IF held.key IS NULL THEN
    until_ms := 0;
  ELSIF held.expires_at_ms <= now_ms - 1000 THEN
    until_ms := -1;
  ELSIF guarded OR held.expires_at_ms > now_ms THEN
    UPDATE "public"."syncguard_locks" AS l SET expires_at_ms = now_ms + ttl_ms WHERE l.lock_id = extended_id;
    until_ms := now_ms + ttl_ms;
    IF NOT guarded THEN
      left_ms := held.expires_at_ms - now_ms;
    END IF;
  END IF;
END $$;

-- Extends many without a guard, and waits for nobody: answers for each, in their order, as of an extend. Null: somebody else uses
-- the row, or its time has just ended.
CREATE OR REPLACE FUNCTION "public"."syncguard_locks_extend_many_v1"(
  extended_ids text[], ttls_ms bigint[], OUT until_ms bigint[], OUT left_ms bigint[]
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  there text[];
  free text[];
  free_until bigint[];
  now_ms bigint;
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('lock_timeout') = '0' THEN
    PERFORM set_config('lock_timeout', '4s', true);
  END IF;
  there := ARRAY(SELECT l.lock_id FROM "public"."syncguard_locks" AS l WHERE l.lock_id = ANY (extended_ids));
  SELECT array_agg(l.lock_id), array_agg(l.expires_at_ms) INTO free, free_until FROM (
    SELECT * FROM "public"."syncguard_locks" AS l WHERE l.lock_id = ANY (extended_ids) FOR UPDATE SKIP LOCKED
  ) AS l;
  now_ms := floor(extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint / 1000;
  UPDATE "public"."syncguard_locks" AS l SET expires_at_ms = now_ms + w.ttl_ms FROM unnest(extended_ids, ttls_ms) AS w(id, ttl_ms)
    WHERE l.lock_id = w.id AND l.lock_id = ANY (free) AND l.expires_at_ms > now_ms;
  SELECT
    array_agg(CASE
      WHEN f.until_ms > now_ms THEN now_ms + w.ttl_ms
      WHEN f.until_ms <= now_ms - 1000 THEN -1
      WHEN w.id <> ALL (there) THEN 0
    END ORDER BY w.number),
    array_agg(CASE WHEN f.until_ms > now_ms THEN f.until_ms - now_ms END ORDER BY w.number)
  INTO until_ms, left_ms
  FROM unnest(extended_ids, ttls_ms) WITH ORDINALITY AS w(id, ttl_ms, number)
    LEFT JOIN unnest(free, free_until) AS f(id, until_ms) ON f.id = w.id;
END $$;

-- The record that was ended, or nothing.
CREATE OR REPLACE FUNCTION "public"."syncguard_locks_force_release_v1"(wanted_key text)
RETURNS TABLE(
  key text, lock_id text, expires_at_ms bigint, acquired_at_ms bigint, fence text, user_key text, details jsonb
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held "public"."syncguard_locks"%ROWTYPE;
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;
  IF current_setting('lock_timeout') = '0' THEN
    PERFORM set_config('lock_timeout', '4s', true);
  END IF;
  PERFORM pg_advisory_xact_lock(hashtext(wanted_key));
  SELECT * INTO held FROM "public"."syncguard_locks" AS l WHERE l.key = wanted_key FOR UPDATE;
  IF held.key IS NULL OR held.expires_at_ms <= floor(extract(epoch FROM clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint / 1000 - 1000 THEN
    RETURN;
  END IF;
  DELETE FROM "public"."syncguard_locks" AS l WHERE l.key = wanted_key;
  PERFORM "public"."syncguard_locks_tell_freed_v1"(wanted_key);
  PERFORM pg_notify('leasehold:465267daef8a10ae80193616', 'R' || held.fence || left(held.user_key, 512));
  RETURN QUERY SELECT held.key, held.lock_id, held.expires_at_ms, held.acquired_at_ms, held.fence, held.user_key, held.details;
END $$;
