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

COMMENT ON COLUMN {{locks}}.details IS 'lockId, holder and metadata; of no meaning where lockId is not lock_id';

{{functions}}

{{own_functions}}

COMMIT;
