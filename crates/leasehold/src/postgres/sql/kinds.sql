-- How locks of every class are taken, and several at once.

-- The next fence of all these counters, whose keys nobody else decides about meanwhile.
CREATE OR REPLACE FUNCTION {{next_fence}}(counters text[], counted_keys text[], now_us bigint) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  next_one bigint;
BEGIN
  SELECT greatest(max({{after_last}}), {{clock_fence}}) INTO next_one
    FROM {{fences}} AS f WHERE f.fence_key = ANY (counters);
  IF next_one > {{highest_fence}} THEN
    RAISE EXCEPTION 'the fence of this key is beyond the highest one' USING ERRCODE = {{fence_too_high}},
      HINT = 'the clock of the server or the fence counter of the key is wrong; go on under a new key';
  END IF;
  INSERT INTO {{fences}} AS f (fence_key, fence, key_debug)
    SELECT c.counter, next_one, c.counted FROM unnest(counters, counted_keys) AS c(counter, counted)
    ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence;
  RETURN lpad(next_one::text, {{fence_digits}}, '0');
END $$;

-- Lets a request in. Its row in the table of locks is ours, or there is none. `class_now` is the class that the key is held in.
CREATE OR REPLACE FUNCTION {{let_in}}(
  wanted_key text, wanted_id text, ttl_ms bigint, wanted_user_key text, wanted_details jsonb, wanted_class text,
  wanted_permits integer, new_fence text, class_now text, now_ms bigint
) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  new_slot integer;
BEGIN
  PERFORM {{claim}}(wanted_key, wanted_id, now_ms);
  DELETE FROM {{line}} AS q WHERE q.lock_id = wanted_id;
  IF wanted_class = class_now THEN
    DELETE FROM {{grants}} AS g WHERE g.key = wanted_key AND g.expires_at_ms <= now_ms - {{tolerance_ms}};
    DELETE FROM {{grants}} AS g WHERE g.lock_id = wanted_id;
  ELSE
    -- None of them counts: the placeholder is not there, or its time is over.
    DELETE FROM {{grants}} AS g WHERE g.key = wanted_key;
  END IF;
  IF wanted_class <> 'x' THEN
    -- Fewer are taken than there are permits, so that one of their numbers is free: the lowest behind which there is a gap, or 0.
    IF wanted_class = 'p' THEN
      SELECT coalesce(min(free.slot), 0) INTO new_slot FROM (
        SELECT g.slot + 1 AS slot FROM {{grants}} AS g
        WHERE g.key = wanted_key AND EXISTS (SELECT FROM {{grants}} AS z WHERE z.key = wanted_key AND z.slot = 0)
          AND NOT EXISTS (SELECT FROM {{grants}} AS n WHERE n.key = wanted_key AND n.slot = g.slot + 1)
        ORDER BY g.slot LIMIT 1
      ) AS free;
    END IF;
    INSERT INTO {{grants}} (key, lock_id, class, permits, slot, fence, acquired_at_ms, expires_at_ms, user_key, details) VALUES (
      wanted_key, wanted_id, wanted_class, wanted_permits, new_slot, new_fence, now_ms, now_ms + ttl_ms, wanted_user_key,
      wanted_details
    );
  END IF;
  INSERT INTO {{locks}} AS l (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, details)
    SELECT wanted_key, wanted_id, now_ms + ttl_ms, now_ms, new_fence, wanted_user_key, wanted_details
      WHERE wanted_class = 'x'
    UNION ALL SELECT wanted_key, {{placeholder}} || wanted_class || {{hash}}(wanted_key),
        (SELECT max(g.expires_at_ms) FROM {{grants}} AS g WHERE g.key = wanted_key), now_ms, new_fence, wanted_user_key, NULL
      WHERE wanted_class <> 'x'
    ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
      acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key,
      details = excluded.details;
  IF NOT pg_try_advisory_xact_lock_shared({{interest}}, {{watched}}) THEN
    PERFORM pg_notify({{channel}}, {{granted}} || new_fence || coalesce(wanted_details->>'holder', '') || chr(10)
      || left(wanted_user_key, {{longest_key}}));
  END IF;
  -- Behind one who has it alone there is room for nobody.
  IF wanted_class <> 'x' AND EXISTS (SELECT FROM {{line}} AS q WHERE q.key = wanted_key) THEN
    PERFORM {{call_next}}(wanted_key, now_ms);
  END IF;
  RETURN new_slot;
END $$;

-- What acquire does about everything but an exclusive lock for which nobody stands in line.
CREATE OR REPLACE FUNCTION {{acquire_kind}}(
  wanted_key text, wanted_id text, ttl_ms bigint, wanted_user_key text, counter text, wanted_details jsonb,
  same_holder text, held_longer_than_ms bigint, stuck_fence text,
  wanted_class text, wanted_permits integer, wanted_line text, lease_ms bigint,
  OUT granted boolean, OUT held_id text, OUT held_fence text, OUT held_since_ms bigint, OUT held_until_ms bigint,
  OUT held_details text, OUT now_us bigint, OUT held_class text, OUT held_permits integer, OUT held_slot integer,
  OUT holders integer, OUT place integer
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  seen record;
  victims text[] := '{}';
  victim record;
BEGIN
  -- Whoever is refused waits for nobody and writes nothing, unless it joins the line or finds somebody in it to be called. The row
  -- is locked only to be taken over. After each wait all is decided again.
  FOR look IN CASE WHEN wanted_line = 'j' THEN 2 ELSE 1 END..3 LOOP
    IF look = 2 THEN
      PERFORM pg_advisory_xact_lock(hashtext(wanted_key));
    ELSIF look = 3 THEN
      PERFORM FROM {{locks}} AS l WHERE l.key = wanted_key FOR UPDATE;
    END IF;
    SELECT * INTO seen FROM {{look}}(wanted_key, wanted_id, wanted_class, wanted_permits, wanted_line);
    now_us := seen.now_us;
    IF seen.own_fence IS NOT NULL THEN
      CONTINUE WHEN look = 1;
      IF seen.callable THEN
        PERFORM {{call_next}}(wanted_key, now_us / 1000);
      END IF;
      granted := false;
      held_id := wanted_id;
      held_fence := seen.own_fence;
      held_since_ms := seen.own_since_ms;
      held_until_ms := seen.own_until_ms;
      held_slot := seen.own_slot;
      RETURN;
    END IF;
    IF NOT seen.blocked THEN
      EXIT WHEN look = 3 OR (look = 2 AND NOT seen.row_there);
      CONTINUE;
    END IF;
    IF seen.must_end > 0 AND num_nonnulls(same_holder, held_longer_than_ms, stuck_fence) > 0 THEN
      victims := ARRAY(
        SELECT h.lock_id FROM (
          SELECT l.lock_id, l.acquired_at_ms, l.fence, l.details FROM {{locks}} AS l
            WHERE l.key = wanted_key AND seen.class_now = 'x'
          UNION ALL SELECT g.lock_id, g.acquired_at_ms, g.fence, g.details FROM {{grants}} AS g
            WHERE g.key = wanted_key AND g.class = seen.class_now AND g.lock_id <> wanted_id
              AND g.expires_at_ms > now_us / 1000 - {{tolerance_ms}}
        ) AS h
        WHERE coalesce(h.details->>'lockId' = h.lock_id AND h.details->>'holder' = same_holder, false)
          OR coalesce(h.acquired_at_ms < now_us / 1000 - held_longer_than_ms, false)
          OR coalesce(h.fence = stuck_fence, false)
        ORDER BY h.fence COLLATE "C" LIMIT seen.must_end
      );
      EXIT WHEN look = 3 AND cardinality(victims) = seen.must_end;
      CONTINUE WHEN cardinality(victims) = seen.must_end;
    END IF;
    CONTINUE WHEN look = 1 AND seen.callable;
    IF wanted_line = 'j' THEN
      place := {{join_line}}(
        wanted_key, wanted_id, wanted_user_key, wanted_details, wanted_class, wanted_permits, lease_ms, now_us / 1000
      );
    END IF;
    IF seen.callable THEN
      PERFORM {{call_next}}(wanted_key, now_us / 1000);
    END IF;
    granted := false;
    held_id := seen.held_id;
    held_fence := seen.held_fence;
    held_since_ms := seen.held_since_ms;
    held_until_ms := seen.held_until_ms;
    held_details := seen.held_details;
    held_class := seen.held_class;
    held_permits := seen.held_permits;
    holders := seen.others;
    RETURN;
  END LOOP;

  IF NOT seen.blocked THEN
    victims := '{}';
  END IF;
  FOR victim IN
    SELECT l.fence, l.user_key FROM {{locks}} AS l WHERE l.key = wanted_key AND l.lock_id = ANY (victims)
    UNION ALL SELECT g.fence, g.user_key FROM {{grants}} AS g WHERE g.lock_id = ANY (victims)
  LOOP
    PERFORM pg_notify({{channel}}, {{stolen}} || victim.fence || left(victim.user_key, {{longest_key}}));
  END LOOP;
  DELETE FROM {{grants}} AS g WHERE g.lock_id = ANY (victims);
  granted := true;
  held_id := wanted_id;
  held_fence := {{next_fence}}(ARRAY[counter], ARRAY[wanted_user_key], now_us);
  held_since_ms := now_us / 1000;
  held_until_ms := now_us / 1000 + ttl_ms;
  held_slot := {{let_in}}(
    wanted_key, wanted_id, ttl_ms, wanted_user_key, wanted_details, wanted_class, wanted_permits, held_fence, seen.class_now,
    now_us / 1000
  );
  -- If several had to go, there may be room for more than us.
  IF cardinality(victims) > 1 THEN
    PERFORM {{tell_freed}}(wanted_key);
  END IF;
END $$;

-- Takes all locks or none: their grants, in the order of what is wanted, or the number of the one that is in the way, and in whose
-- way it is.
CREATE OR REPLACE FUNCTION {{acquire_all}}(
  wanted_keys text[], wanted_ids text[], ttls_ms bigint[], wanted_user_keys text[], counters text[], wanted_details jsonb[],
  wanted_classes text[], wanted_permits integer[], wanted_lines text[],
  OUT fences text[], OUT since_ms bigint[], OUT until_ms bigint[], OUT slots integer[],
  OUT which integer, OUT held_id text, OUT held_fence text, OUT held_since_ms bigint, OUT held_until_ms bigint,
  OUT held_details text, OUT now_us bigint, OUT held_class text, OUT held_permits integer, OUT holders integer
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  seen record;
  classes_now text[];
  number integer;
  can_be_called boolean;
  found_ms bigint;
  new_fence text;
BEGIN
  {{prepare}}
  FOR look IN 1..3 LOOP
    IF look = 2 THEN
      -- In one order for everybody, so that nobody waits in a circle. Two keys may share a number.
      FOR number IN SELECT DISTINCT hashtext(k.name) FROM unnest(wanted_keys) AS k(name) ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(number);
      END LOOP;
    ELSIF look = 3 THEN
      PERFORM FROM {{locks}} AS l WHERE l.key = ANY (wanted_keys) ORDER BY l.key FOR UPDATE;
    END IF;
    which := NULL;
    fences := '{}';
    since_ms := '{}';
    until_ms := '{}';
    slots := '{}';
    classes_now := '{}';
    FOR wanted IN 1..cardinality(wanted_keys) LOOP
      SELECT * INTO seen FROM {{look}}(
        wanted_keys[wanted], wanted_ids[wanted], wanted_classes[wanted], wanted_permits[wanted], wanted_lines[wanted]
      );
      now_us := seen.now_us;
      fences := fences || seen.own_fence;
      since_ms := since_ms || seen.own_since_ms;
      until_ms := until_ms || seen.own_until_ms;
      slots := slots || seen.own_slot;
      classes_now := classes_now || seen.class_now;
      IF seen.blocked AND which IS NULL THEN
        which := wanted;
        can_be_called := seen.callable;
        found_ms := seen.now_us / 1000;
        held_id := seen.held_id;
        held_fence := seen.held_fence;
        held_since_ms := seen.held_since_ms;
        held_until_ms := seen.held_until_ms;
        held_details := seen.held_details;
        held_class := seen.held_class;
        held_permits := seen.held_permits;
        holders := seen.others;
      END IF;
    END LOOP;
    IF array_position(fences, NULL) IS NULL THEN
      CONTINUE WHEN look = 1;
      which := NULL;
      RETURN;
    END IF;
    CONTINUE WHEN look = 1 AND which IS NOT NULL AND can_be_called;
    IF which IS NOT NULL THEN
      IF can_be_called THEN
        PERFORM {{call_next}}(wanted_keys[which], found_ms);
      END IF;
      RETURN;
    END IF;
  END LOOP;

  new_fence := {{next_fence}}(counters, wanted_user_keys, now_us);
  FOR wanted IN 1..cardinality(wanted_keys) LOOP
    fences[wanted] := new_fence;
    since_ms[wanted] := now_us / 1000;
    until_ms[wanted] := now_us / 1000 + ttls_ms[wanted];
    slots[wanted] := {{let_in}}(
      wanted_keys[wanted], wanted_ids[wanted], ttls_ms[wanted], wanted_user_keys[wanted], wanted_details[wanted],
      wanted_classes[wanted], wanted_permits[wanted], new_fence, classes_now[wanted], now_us / 1000
    );
  END LOOP;
END $$;
