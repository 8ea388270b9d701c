-- Tables, indexes and functions for Leasehold. It may be run again at any time, and by many at once.

BEGIN;

-- Whoever runs this may be allowed much, and strangers may have put things into schemas: none of
-- theirs is found.
SET LOCAL search_path = pg_catalog, pg_temp;

SELECT pg_advisory_xact_lock(hashtext('leasehold migrate'));

DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {{schema_text}}) THEN
    CREATE SCHEMA {{schema}};
  END IF;
END $$;

CREATE TABLE IF NOT EXISTS {{locks}} (
  key text PRIMARY KEY,
  lock_id text NOT NULL,
  expires_at_ms bigint NOT NULL,
  acquired_at_ms bigint NOT NULL,
  fence text NOT NULL,
  user_key text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- Rows are updated in place: there is room on the page, and what changes is in no index.
CREATE TABLE IF NOT EXISTS {{fences}} (
  fence_key text PRIMARY KEY,
  fence bigint NOT NULL DEFAULT 0,
  key_debug text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A column or an index is added only where it is missing, because even to ask for it waits for all who write to the table, and
-- keeps everybody else out of it meanwhile. The column comes first: whoever reads and then writes must not meet us between.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = {{locks_text}}::regclass AND attname = 'details' AND NOT attisdropped) THEN
    ALTER TABLE {{locks}} ADD COLUMN details jsonb;
  END IF;
  IF NOT EXISTS (
    SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
    WHERE indrelid = {{locks_text}}::regclass AND attname = 'lock_id'
      AND indisunique AND indisvalid AND indnkeyatts = 1 AND indpred IS NULL
  ) THEN
    CREATE UNIQUE INDEX {{lock_id_index}} ON {{locks}} (lock_id);
  END IF;
  IF NOT EXISTS (
    SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
    WHERE indrelid = {{locks_text}}::regclass AND attname = 'expires_at_ms'
  ) THEN
    CREATE INDEX {{expiry_index}} ON {{locks}} (expires_at_ms);
  END IF;
END $$;

-- What does not fit into a row that other programs read. Who may use the table of locks may use these, which belong to the same
-- owner.
DO $$
DECLARE
  made text;
  privilege record;
BEGIN
  IF to_regclass({{grants_text}}) IS NULL THEN
    CREATE TABLE {{grants}} (
      lock_id text PRIMARY KEY,
      key text NOT NULL,
      class text NOT NULL,
      permits integer NOT NULL,
      slot integer,
      fence text NOT NULL,
      acquired_at_ms bigint NOT NULL,
      expires_at_ms bigint NOT NULL,
      user_key text NOT NULL,
      details jsonb
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
    CREATE INDEX ON {{grants}} (key, expires_at_ms);
    CREATE UNIQUE INDEX ON {{grants}} (key, slot) WHERE slot IS NOT NULL;
    made := {{grants_text}};
  END IF;
  IF to_regclass({{line_text}}) IS NULL THEN
    -- Who asks again changes what is in no index.
    CREATE TABLE {{line}} (
      key text NOT NULL,
      place bigint GENERATED ALWAYS AS IDENTITY,
      lock_id text NOT NULL UNIQUE,
      class text NOT NULL,
      permits integer NOT NULL,
      since_ms bigint NOT NULL,
      until_ms bigint NOT NULL,
      called boolean NOT NULL,
      user_key text NOT NULL,
      details jsonb,
      PRIMARY KEY (key, place)
    ) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
    made := concat_ws(', ', made, {{line_text}});
  END IF;
  FOR privilege IN
    SELECT format('ALTER TABLE %s OWNER TO %s', table_made, relowner::regrole) AS given, 1 AS step
      FROM pg_class, unnest(string_to_array(made, ', ')) AS table_made
      WHERE oid = {{locks_text}}::regclass AND pg_get_userbyid(relowner) <> current_user
    UNION ALL SELECT format(
        'GRANT %s ON %s TO %s', a.privilege_type, table_made,
        CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
      ), 2
      FROM pg_class, aclexplode(relacl) AS a, unnest(string_to_array(made, ', ')) AS table_made
      WHERE oid = {{locks_text}}::regclass AND a.grantee <> relowner
        AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    ORDER BY 2
  LOOP
    EXECUTE privilege.given;
  END LOOP;
END $$;

COMMENT ON COLUMN {{locks}}.details IS 'lockId, holder and metadata; of no meaning where lockId is not lock_id';

{{functions}}

{{own_functions}}

COMMIT;
