-- Functions for everybody who speaks SQL. They check what the types of the library check, and leave
-- the rest to the functions of the same version. Whoever may execute them needs no right on the
-- tables, and so never sees the lock id of another: they run with the rights of the owner, and find
-- nothing that a stranger may have put into a schema.

-- Takes the lock for the caller alone, or tells who has it. It does not stand in line. A lock id of the caller's own makes it safe
-- to call again.
CREATE OR REPLACE FUNCTION {{public_acquire}}(
  key text, ttl_seconds double precision DEFAULT {{default_ttl_s}}, holder text DEFAULT NULL::text,
  metadata jsonb DEFAULT '{}'::jsonb,
  OUT granted boolean, INOUT lock_id text DEFAULT NULL::text, OUT fence text, OUT expires_at timestamp with time zone,
  OUT held_by text, OUT held_since timestamp with time zone
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
-- Leasehold functions, version {{version}}.
DECLARE
  user_key text := {{check_key}}(key);
  name text := {{storage_key}}(user_key, {{longest_name}});
  wanted_id text := {{check_lock_id}}(coalesce(lock_id, {{new_lock_id}}()));
  details jsonb := {{check_details}}(wanted_id, holder, metadata);
  answer record;
BEGIN
  SELECT * INTO answer FROM {{acquire}}(
    name, wanted_id, {{check_ttl}}(ttl_seconds), user_key, {{storage_key}}('fence:' || name, {{longest_name}}), details,
    NULL::text, NULL::bigint, NULL::text, 'x', 1, 'i', NULL::bigint
  );
  granted := answer.held_id = wanted_id;
  lock_id := NULL;
  IF granted THEN
    lock_id := wanted_id;
    fence := answer.held_fence;
  END IF;
  IF NOT answer.granted THEN
    details := answer.held_details::jsonb;
  END IF;
  IF details->>'lockId' = answer.held_id THEN
    held_by := details->>'holder';
  END IF;
  expires_at := {{to_time}}(answer.held_until_ms);
  held_since := {{to_time}}(answer.held_since_ms);
END $$;

-- Whether it was the caller's until now.
CREATE OR REPLACE FUNCTION {{public_release}}(lock_id text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
-- Leasehold functions, version {{version}}.
BEGIN
  RETURN {{release}}({{check_lock_id}}(lock_id)) = 1;
END $$;

-- When it ends now, or null if it is no longer the caller's. Guarded, because nobody knows when the caller commits.
CREATE OR REPLACE FUNCTION {{public_extend}}(lock_id text, ttl_seconds double precision) RETURNS timestamp with time zone
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
-- Leasehold functions, version {{version}}.
DECLARE
  until_ms bigint := ({{extend}}({{check_lock_id}}(lock_id), {{check_ttl}}(ttl_seconds), true)).until_ms;
BEGIN
  IF until_ms > 0 THEN
    RETURN {{to_time}}(until_ms);
  END IF;
  RETURN NULL;
END $$;

-- Who has the lock of a key, for the longest time if several do: one row, or none if it is free. It writes nothing.
CREATE OR REPLACE FUNCTION {{public_holder}}(key text)
RETURNS TABLE(
  held_by text, held_since timestamp with time zone, expires_at timestamp with time zone, fence text, metadata jsonb
) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
-- Leasehold functions, version {{version}}.
DECLARE
  name text := {{storage_key}}({{check_key}}(key), {{longest_name}});
  held record;
BEGIN
  SELECT h.* INTO held FROM ({{held}}) AS h
    WHERE h.key = name AND h.expires_at_ms > {{now_us}} / 1000 - {{tolerance_ms}}
    ORDER BY h.fence COLLATE "C" LIMIT 1;
  IF held.key IS NULL THEN
    RETURN;
  END IF;
  held_since := {{to_time}}(held.acquired_at_ms);
  expires_at := {{to_time}}(held.expires_at_ms);
  fence := held.fence;
  metadata := '{}'::jsonb;
  IF held.details->>'lockId' = held.lock_id THEN
    held_by := held.details->>'holder';
    BEGIN
      metadata := coalesce(held.details->>'metadata', '{}')::jsonb;
    EXCEPTION WHEN data_exception THEN
      -- JSON that other clients can store and this server's own type cannot, such as text with a
      -- NUL character.
      metadata := NULL;
    END;
  END IF;
  RETURN NEXT;
END $$;
