-- Takes many exclusive locks, each by itself, and waits for nobody: a row for each request that it decided, as an acquire would
-- have answered, and none for the others, which have to ask alone. It decides what nearly all of them are: the key is free and
-- nobody stands in line for it, or somebody has it alone. No key and no lock id is given twice, and nobody here may steal.
--
-- It was added to a version that had been used: a database without it works too.
CREATE OR REPLACE FUNCTION {{acquire_many}}(
  wanted_keys text[], wanted_ids text[], ttls_ms bigint[], wanted_user_keys text[], counters text[], wanted_details jsonb[],
  wanted_lines text[]
) RETURNS TABLE(
  wanted integer, granted boolean, held_id text, held_fence text, held_since_ms bigint, held_until_ms bigint, held_details text,
  now_us bigint, held_class text, held_permits integer, held_slot integer, holders integer, place integer
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  guarded integer[];
  some_died boolean;
  dead text[] := '{}';
  let_in integer[];
  new_fences bigint[];
BEGIN
  {{prepare_many}}
  now_us := {{now_us}};
  -- As in an acquire, the first look comes before the advisory lock, so that nobody waits for one who is refused. Nothing is granted
  -- by what it saw. Here and below each row is looked for by itself, so that an index finds it, whatever the server believes of the
  -- tables.
  SELECT coalesce(array_agg(w.number::integer), '{}'), coalesce(bool_or(w.until_ms IS NOT NULL), false) INTO guarded, some_died
    FROM (
      SELECT k.key, k.number, (SELECT l.expires_at_ms FROM {{locks}} AS l WHERE l.key = k.key) AS until_ms
      FROM unnest(wanted_keys) WITH ORDINALITY AS k(key, number) OFFSET 0
    ) AS w
    WHERE CASE WHEN w.until_ms > now_us / 1000 - {{tolerance_ms}} THEN false
      ELSE pg_try_advisory_xact_lock(hashtext(w.key)) END;
  now_us := {{now_us}};
  IF some_died THEN
    dead := ARRAY(
      SELECT l.key FROM {{locks}} AS l
      WHERE l.key = ANY (ARRAY(SELECT wanted_keys[g.number] FROM unnest(guarded) AS g(number)))
        AND l.expires_at_ms <= now_us / 1000 - {{tolerance_ms}} AND NOT starts_with(l.lock_id, {{placeholder}})
      FOR UPDATE SKIP LOCKED
    );
  END IF;

  -- The counters are those of keys about which nobody else decides meanwhile.
  SELECT coalesce(array_agg(p.number), '{}'), coalesce(array_agg(p.fence), '{}') INTO let_in, new_fences FROM (
    SELECT g.number, greatest(
        (SELECT {{after_last}} FROM {{fences}} AS f WHERE f.fence_key = counters[g.number]), {{clock_fence}}
      ) AS fence
    FROM unnest(guarded) AS g(number)
    WHERE (SELECT true FROM {{locks}} AS l WHERE l.key = wanted_keys[g.number] AND l.key <> ALL (dead)) IS NULL
      AND (SELECT true FROM {{locks}} AS l WHERE l.lock_id = wanted_ids[g.number]) IS NULL
      AND (SELECT true FROM {{line}} AS q WHERE q.key = wanted_keys[g.number] LIMIT 1) IS NULL
      AND (SELECT true FROM {{line}} AS q WHERE q.lock_id = wanted_ids[g.number]) IS NULL
      AND (SELECT true FROM {{grants}} AS o WHERE o.lock_id = wanted_ids[g.number]) IS NULL
    OFFSET 0
  ) AS p WHERE p.fence <= {{highest_fence}};

  IF cardinality(let_in) > 0 THEN
    INSERT INTO {{fences}} AS f (fence_key, fence, key_debug)
      SELECT counters[p.number], p.fence, wanted_user_keys[p.number] FROM unnest(let_in, new_fences) AS p(number, fence)
      ON CONFLICT (fence_key) DO UPDATE SET fence = excluded.fence;
    RETURN QUERY INSERT INTO {{locks}} AS l (key, lock_id, expires_at_ms, acquired_at_ms, fence, user_key, details)
      SELECT wanted_keys[p.number], wanted_ids[p.number], now_us / 1000 + ttls_ms[p.number], now_us / 1000,
        lpad(p.fence::text, {{fence_digits}}, '0'), wanted_user_keys[p.number], wanted_details[p.number]
      FROM unnest(let_in, new_fences) AS p(number, fence)
      ON CONFLICT (key) DO UPDATE SET lock_id = excluded.lock_id, expires_at_ms = excluded.expires_at_ms,
        acquired_at_ms = excluded.acquired_at_ms, fence = excluded.fence, user_key = excluded.user_key,
        details = excluded.details
      RETURNING array_position(wanted_ids, l.lock_id), true, l.lock_id, l.fence, l.acquired_at_ms, l.expires_at_ms, NULL::text,
        now_us, NULL::text, NULL::integer, NULL::integer, NULL::integer, NULL::integer;
    IF NOT pg_try_advisory_xact_lock_shared({{interest}}, {{watched}}) THEN
      PERFORM pg_notify({{channel}}, {{granted}} || lpad(p.fence::text, {{fence_digits}}, '0')
          || coalesce(wanted_details[p.number]->>'holder', '') || chr(10) || left(wanted_user_keys[p.number], {{longest_key}}))
        FROM unnest(let_in, new_fences) AS p(number, fence);
    END IF;
  END IF;

  -- Who has a key alone has it whoever stands in line. Whoever would join the line asks alone.
  IF cardinality(let_in) < cardinality(wanted_keys) THEN
    RETURN QUERY SELECT w.number::integer, false, l.lock_id, l.fence, l.acquired_at_ms, l.expires_at_ms, l.details::text,
        now_us, 'x'::text, NULL::integer, NULL::integer, 1, NULL::integer
      FROM unnest(wanted_keys) WITH ORDINALITY AS w(key, number),
        LATERAL (SELECT * FROM {{locks}} AS k WHERE k.key = w.key LIMIT 1) AS l
      WHERE w.number <> ALL (let_in) AND wanted_lines[w.number] <> 'j' AND l.lock_id <> wanted_ids[w.number]
        AND l.expires_at_ms > now_us / 1000 - {{tolerance_ms}} AND NOT starts_with(l.lock_id, {{placeholder}});
  END IF;
END $$;
