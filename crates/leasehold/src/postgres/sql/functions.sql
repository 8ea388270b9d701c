-- A lock is held while expires_at_ms > now - {{tolerance_ms}}. Time is read after every wait.
--
-- Every name ends in the version of the functions. A change to any of them is a new version:
-- programs of the old one go on with theirs. A test says what to do.

-- Tells those who wait for a key that it is free. Whoever waits shares a lock on the key's number, so that nobody is told if
-- nobody waits: telling makes commits queue up behind each other. There are not many numbers: the server has room for some
-- thousand locks, for everybody.
CREATE OR REPLACE FUNCTION {{tell_freed}}(freed_key text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF NOT pg_try_advisory_xact_lock({{interest}}, hashtext(freed_key) & {{shares}}) THEN
    PERFORM pg_notify({{channel}}, {{freed}} || freed_key);
  END IF;
END $$;

-- Grants the lock, or returns the record that stands.
CREATE OR REPLACE FUNCTION {{acquire}}(
  wanted_key text, wanted_id text, ttl_ms bigint, wanted_user_key text, counter text, wanted_details jsonb,
  same_holder text, held_longer_than_ms bigint, stuck_fence text,
  OUT granted boolean, OUT held_id text, OUT held_fence text, OUT held_since_ms bigint, OUT held_until_ms bigint,
  OUT held_details text, OUT now_us bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held {{locks}}%ROWTYPE;
  taken boolean;
  next_fence bigint;
  elsewhere_until bigint;
BEGIN
  {{prepare}}
  PERFORM pg_advisory_xact_lock(hashtext(wanted_key));
  -- Whoever is refused writes nothing: the row is locked, which is a write, only to be taken over. Then all is decided again.
  FOR look IN 1..2 LOOP
    IF look = 1 THEN
      SELECT * INTO held FROM {{locks}} AS l WHERE l.key = wanted_key;
    ELSE
      SELECT * INTO held FROM {{locks}} AS l WHERE l.key = wanted_key FOR UPDATE;
    END IF;
    now_us := {{now_us}};
    EXIT WHEN held.key IS NULL;
    taken := held.expires_at_ms > now_us / 1000 - {{tolerance_ms}};
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
    PERFORM pg_notify({{channel}}, {{stolen}} || held.fence || left(held.user_key, {{longest_key}}));
  END IF;

  SELECT l.expires_at_ms INTO elsewhere_until FROM {{locks}} AS l WHERE l.lock_id = wanted_id AND l.key <> wanted_key;
  IF elsewhere_until > now_us / 1000 - {{tolerance_ms}} THEN
    RAISE EXCEPTION 'the lock id belongs to the lock of another key' USING ERRCODE = {{lock_id_in_use}},
      HINT = 'make a new lock id for each lock';
  ELSIF elsewhere_until IS NOT NULL THEN
    DELETE FROM {{locks}} AS l WHERE l.lock_id = wanted_id AND l.key <> wanted_key AND l.expires_at_ms = elsewhere_until;
  END IF;

  -- Never below the clock, in units of 100 microseconds: a server that lost its last writes repeats no fence.
  INSERT INTO {{fences}} AS f (fence_key, fence, key_debug) VALUES (counter, now_us / 100, wanted_user_key)
    ON CONFLICT (fence_key) DO UPDATE SET fence = greatest(least(f.fence, {{highest_fence}}) + 1, excluded.fence)
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
END $$;

-- 1: released, 0: there is no such lock, -1: its time was over.
CREATE OR REPLACE FUNCTION {{release}}(released_id text) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  gone {{locks}}%ROWTYPE;
BEGIN
  {{prepare}}
  DELETE FROM {{locks}} AS l WHERE l.lock_id = released_id RETURNING * INTO gone;
  IF gone.key IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM {{tell_freed}}(gone.key);
  IF gone.expires_at_ms > {{now_us}} / 1000 - {{tolerance_ms}} THEN
    RETURN 1;
  END IF;
  RETURN -1;
END $$;

-- The new expiry, 0: there is no such lock, -1: its time is over.
CREATE OR REPLACE FUNCTION {{extend}}(extended_id text, ttl_ms bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held_key text;
  held_until bigint;
  now_ms bigint;
BEGIN
  {{prepare}}
  -- Whoever acquires decides by what is committed, and the other library takes no lock on the row: it could find this lock dead
  -- and overwrite it while the commit of this extend is on its way.
  SELECT l.key INTO held_key FROM {{locks}} AS l WHERE l.lock_id = extended_id;
  PERFORM pg_advisory_xact_lock(hashtext(held_key));
  SELECT l.expires_at_ms INTO held_until FROM {{locks}} AS l WHERE l.lock_id = extended_id FOR UPDATE;
  now_ms := {{now_us}} / 1000;
  IF held_until IS NULL THEN
    RETURN 0;
  ELSIF held_until <= now_ms - {{tolerance_ms}} THEN
    RETURN -1;
  END IF;
  UPDATE {{locks}} AS l SET expires_at_ms = now_ms + ttl_ms WHERE l.lock_id = extended_id;
  RETURN now_ms + ttl_ms;
END $$;

-- The record that was ended, or nothing.
CREATE OR REPLACE FUNCTION {{force_release}}(wanted_key text)
RETURNS TABLE(
  key text, lock_id text, expires_at_ms bigint, acquired_at_ms bigint, fence text, user_key text, details jsonb
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held {{locks}}%ROWTYPE;
BEGIN
  {{prepare}}
  PERFORM pg_advisory_xact_lock(hashtext(wanted_key));
  SELECT * INTO held FROM {{locks}} AS l WHERE l.key = wanted_key FOR UPDATE;
  IF held.key IS NULL OR held.expires_at_ms <= {{now_us}} / 1000 - {{tolerance_ms}} THEN
    RETURN;
  END IF;
  DELETE FROM {{locks}} AS l WHERE l.key = wanted_key;
  PERFORM {{tell_freed}}(wanted_key);
  PERFORM pg_notify({{channel}}, {{force_released}} || held.fence || left(held.user_key, {{longest_key}}));
  RETURN QUERY SELECT held.key, held.lock_id, held.expires_at_ms, held.acquired_at_ms, held.fence, held.user_key, held.details;
END $$;
