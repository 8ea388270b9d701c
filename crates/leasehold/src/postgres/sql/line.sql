-- Who holds a key and who stands in line for it. All of it is decided under the advisory lock of the key.
--
-- An exclusive lock is a row of the table of locks and nothing else. Shared locks and permits have rows in the table of grants, and
-- a placeholder in the table of locks, which other programs take for a lock that somebody else has: its time is that of the
-- last of the grants. Grants count as long as that placeholder is there, so that who takes its place, ends them all. Its row is
-- locked before any of them is changed. A key that is kept for the first in line has a placeholder too.

-- The class of the locks that somebody holds, by the row of the table of locks; empty if nobody does.
CREATE OR REPLACE FUNCTION {{class_of}}(lock_id text, expires_at_ms bigint, now_ms bigint) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN expires_at_ms IS NULL OR expires_at_ms <= now_ms - {{tolerance_ms}} OR starts_with(lock_id, {{kept}}) THEN ''
    WHEN starts_with(lock_id, {{placeholder}}) THEN substr(lock_id, 2, 1)
    ELSE 'x'
  END
$$;

-- Stands for a text where others may see it.
CREATE OR REPLACE FUNCTION {{hash}}(plain text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT left(translate(encode(sha256(convert_to(plain, 'UTF8')), 'base64'), '+/', '-_'), {{hash_length}})
$$;

-- What is in the way of a request, apart from what its own lock id has. It writes nothing.
CREATE OR REPLACE FUNCTION {{look}}(
  wanted_key text, wanted_id text, wanted_class text, wanted_permits integer, wanted_line text,
  OUT now_us bigint, OUT row_there boolean, OUT class_now text, OUT others integer, OUT must_end integer, OUT blocked boolean,
  OUT callable boolean, OUT own_fence text, OUT own_since_ms bigint, OUT own_until_ms bigint, OUT own_slot integer,
  OUT held_id text, OUT held_fence text, OUT held_since_ms bigint, OUT held_until_ms bigint, OUT held_details text,
  OUT held_class text, OUT held_permits integer
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held {{locks}}%ROWTYPE;
  own {{grants}}%ROWTYPE;
  ends bigint[];
  first {{line}}%ROWTYPE;
  now_ms bigint;
  room boolean;
BEGIN
  SELECT * INTO held FROM {{locks}} AS l WHERE l.key = wanted_key;
  now_us := {{now_us}};
  now_ms := now_us / 1000;
  row_there := held.key IS NOT NULL;
  class_now := {{class_of}}(held.lock_id, held.expires_at_ms, now_ms);
  others := 0;
  IF class_now = 'x' AND held.lock_id = wanted_id THEN
    own_fence := held.fence;
    own_since_ms := held.acquired_at_ms;
    own_until_ms := held.expires_at_ms;
  ELSIF class_now = 'x' THEN
    others := 1;
  ELSIF class_now <> '' THEN
    SELECT * INTO own FROM {{grants}} AS g WHERE g.lock_id = wanted_id AND g.key = wanted_key AND g.class = class_now
      AND g.expires_at_ms > now_ms - {{tolerance_ms}};
    own_fence := own.fence;
    own_since_ms := own.acquired_at_ms;
    own_until_ms := own.expires_at_ms;
    own_slot := own.slot;
    -- However many readers there are, there is room for one more.
    SELECT count(*) INTO others FROM (
      SELECT FROM {{grants}} AS g WHERE g.key = wanted_key AND g.class = class_now AND g.lock_id <> wanted_id
        AND g.expires_at_ms > now_ms - {{tolerance_ms}}
      LIMIT CASE WHEN class_now = 's' AND wanted_class = 's' THEN 1 END
    ) AS counted;
  END IF;
  room := others = 0 OR (class_now <> 'x' AND class_now = wanted_class AND others < wanted_permits);
  SELECT * INTO first FROM {{line}} AS q WHERE q.key = wanted_key AND q.until_ms > now_ms ORDER BY q.place LIMIT 1;
  -- One whose call would end later than it can was called before the clock was set back.
  first.called := first.called AND first.until_ms <= now_ms + {{call_lease_ms}};
  blocked := NOT room OR coalesce(
    first.lock_id <> wanted_id AND (wanted_line <> 'i' OR (others = 0 AND first.called)), false
  );
  callable := coalesce(NOT first.called AND (class_now = '' OR (
    class_now <> 'x' AND class_now = first.class AND others + (own.key IS NOT NULL)::integer < first.permits
  )), false);
  must_end := 0;
  IF NOT blocked THEN
    RETURN;
  END IF;
  -- Whoever is refused calls the first in line if it can come.
  IF callable THEN
    first.until_ms := least(first.until_ms, now_ms + {{call_lease_ms}});
  END IF;
  IF others = 0 THEN
    held_id := first.lock_id;
    held_since_ms := first.since_ms;
    -- Live for a lock is a while longer than live for a place.
    held_until_ms := first.until_ms - {{tolerance_ms}};
    held_details := first.details::text;
    held_class := first.class;
    held_permits := first.permits;
    RETURN;
  END IF;
  held_class := class_now;
  IF class_now = 'x' THEN
    must_end := 1;
    held_id := held.lock_id;
    held_fence := held.fence;
    held_since_ms := held.acquired_at_ms;
    held_until_ms := held.expires_at_ms;
    held_details := held.details::text;
    RETURN;
  END IF;
  SELECT c.number, g.lock_id, g.fence, g.acquired_at_ms, g.details::text, g.permits,
      CASE WHEN room THEN 0 WHEN class_now = wanted_class THEN c.number + 1 - wanted_permits ELSE c.number END, c.ends
    INTO others, held_id, held_fence, held_since_ms, held_details, held_permits, must_end, ends
    FROM {{grants}} AS g, (
      SELECT count(*) AS number, array_agg(e.expires_at_ms ORDER BY e.expires_at_ms) AS ends FROM {{grants}} AS e
      WHERE e.key = wanted_key AND e.class = class_now AND e.lock_id <> wanted_id AND e.expires_at_ms > now_ms - {{tolerance_ms}}
    ) AS c
    WHERE g.key = wanted_key AND g.class = class_now AND g.lock_id <> wanted_id AND g.expires_at_ms > now_ms - {{tolerance_ms}}
    ORDER BY g.fence COLLATE "C" LIMIT 1;
  -- So many must end before there is room.
  held_until_ms := CASE WHEN room THEN first.until_ms - {{tolerance_ms}} ELSE ends[must_end] END;
  -- Somebody may have released meanwhile, unless the row of the placeholder is locked. Then there is room after all, perhaps.
  IF held_id IS NULL OR held_until_ms IS NULL THEN
    blocked := false;
    others := 0;
    must_end := 0;
  END IF;
END $$;

-- Calls the first in line if there is room for it and it was not called since it asked last. Tells whether anybody is in line. To
-- be done after everything that may have made room, by whoever has the advisory lock of the key.
--
-- While nobody holds the key it is kept for the one who was called. A row that is in the way of that is not dead after all if it
-- was extended meanwhile: the condition is checked once the row is ours.
CREATE OR REPLACE FUNCTION {{call_next}}(called_key text, now_ms bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held {{locks}}%ROWTYPE;
  first {{line}}%ROWTYPE;
  class_now text;
  room boolean := false;
  called_until_ms bigint;
BEGIN
  SELECT * INTO first FROM {{line}} AS q WHERE q.key = called_key AND q.until_ms > now_ms ORDER BY q.place LIMIT 1;
  -- Those who are gone are before it, or there is nobody else. Others behind it may be gone as well: their time will come.
  DELETE FROM {{line}} AS q WHERE q.key = called_key AND q.until_ms <= now_ms AND (first.key IS NULL OR q.place < first.place);
  IF first.key IS NULL THEN
    DELETE FROM {{locks}} AS l WHERE l.key = called_key AND starts_with(l.lock_id, {{kept}});
    RETURN false;
  END IF;
  -- One whose call would end later than it can was called before the clock was set back.
  first.called := first.called AND first.until_ms <= now_ms + {{call_lease_ms}};
  SELECT * INTO held FROM {{locks}} AS l WHERE l.key = called_key;
  class_now := {{class_of}}(held.lock_id, held.expires_at_ms, now_ms);
  called_until_ms := CASE WHEN first.called THEN first.until_ms ELSE least(first.until_ms, now_ms + {{call_lease_ms}}) END;
  IF class_now = '' THEN
    INSERT INTO {{locks}} AS l (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, details) VALUES (
        called_key, {{kept}} || {{hash}}(called_key), called_until_ms - {{tolerance_ms}}, now_ms, lpad('', {{fence_digits}}, '0'),
        first.user_key, NULL
      )
      ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
        acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key,
        details = excluded.details
      WHERE {{class_of}}(l.lock_id, l.expires_at_ms, now_ms) = '';
    room := FOUND;
  ELSIF class_now <> 'x' AND class_now = first.class THEN
    room := class_now = 's' OR first.permits > (
      SELECT count(*) FROM {{grants}} AS g
      WHERE g.key = called_key AND g.class = class_now AND g.expires_at_ms > now_ms - {{tolerance_ms}}
    );
  END IF;
  IF room AND NOT first.called THEN
    UPDATE {{line}} AS q SET called = true, until_ms = called_until_ms WHERE q.key = called_key AND q.place = first.place;
    IF NOT pg_try_advisory_xact_lock({{interest}}, hashtext(called_key) & {{shares}}) THEN
      -- Over one of many channels, so that it goes to hardly anybody else.
      PERFORM pg_notify({{channel}} || ':' || left({{hash}}(first.lock_id), 1), {{turn}} || {{hash}}(first.lock_id));
    END IF;
  END IF;
  RETURN true;
END $$;

-- Takes a place in line, or keeps the one that there is. Tells how many are before it.
CREATE OR REPLACE FUNCTION {{join_line}}(
  wanted_key text, wanted_id text, wanted_user_key text, wanted_details jsonb, wanted_class text, wanted_permits integer,
  lease_ms bigint, now_ms bigint
) RETURNS integer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  own_place bigint;
BEGIN
  UPDATE {{line}} AS q SET until_ms = now_ms + lease_ms, called = false, class = wanted_class, permits = wanted_permits,
      details = wanted_details
    WHERE q.lock_id = wanted_id AND q.key = wanted_key AND q.until_ms > now_ms
    RETURNING q.place INTO own_place;
  IF own_place IS NULL THEN
    PERFORM {{claim}}(wanted_key, wanted_id, now_ms);
    -- What it had here before, and what has ended, is followed by this place.
    DELETE FROM {{locks}} AS l
      WHERE l.lock_id = wanted_id AND l.key = wanted_key AND l.expires_at_ms <= now_ms - {{tolerance_ms}};
    DELETE FROM {{grants}} AS g WHERE g.lock_id = wanted_id;
    DELETE FROM {{line}} AS q WHERE q.lock_id = wanted_id;
    INSERT INTO {{line}} AS q (key, lock_id, class, permits, since_ms, until_ms, called, user_key, details)
      VALUES (wanted_key, wanted_id, wanted_class, wanted_permits, now_ms, now_ms + lease_ms, false, wanted_user_key,
        wanted_details)
      RETURNING q.place INTO own_place;
  END IF;
  RETURN (
    SELECT count(*) FROM {{line}} AS q WHERE q.key = wanted_key AND q.place < own_place AND q.until_ms > now_ms
  );
END $$;

-- Refuses a lock id that holds, or waits for, the lock of another key, and removes what is left of it there otherwise.
CREATE OR REPLACE FUNCTION {{claim}}(wanted_key text, wanted_id text, now_ms bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF EXISTS (
      SELECT FROM {{locks}} AS l
      WHERE l.lock_id = wanted_id AND l.key <> wanted_key AND l.expires_at_ms > now_ms - {{tolerance_ms}}
    ) OR EXISTS (
      SELECT FROM {{grants}} AS g
      WHERE g.lock_id = wanted_id AND g.key <> wanted_key AND g.expires_at_ms > now_ms - {{tolerance_ms}}
    ) OR EXISTS (
      SELECT FROM {{line}} AS q WHERE q.lock_id = wanted_id AND q.key <> wanted_key AND q.until_ms > now_ms
    )
  THEN
    RAISE EXCEPTION 'the lock id belongs to the lock of another key' USING ERRCODE = {{lock_id_in_use}},
      HINT = 'make a new lock id for each lock';
  END IF;
  DELETE FROM {{locks}} AS l
    WHERE l.lock_id = wanted_id AND l.key <> wanted_key AND l.expires_at_ms <= now_ms - {{tolerance_ms}};
  DELETE FROM {{grants}} AS g
    WHERE g.lock_id = wanted_id AND g.key <> wanted_key AND g.expires_at_ms <= now_ms - {{tolerance_ms}};
  DELETE FROM {{line}} AS q WHERE q.lock_id = wanted_id AND q.key <> wanted_key AND q.until_ms <= now_ms;
END $$;
