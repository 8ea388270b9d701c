-- Where a table of locks without a schema is found, if that is not ours; and where one would be
-- made.
SELECT (
    SELECT nspname::text FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = pg_catalog.to_regclass(pg_catalog.quote_ident($1)) AND nspname <> {{schema_text}}
  ), pg_catalog.current_schema()::text
