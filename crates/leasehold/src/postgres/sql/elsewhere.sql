-- The schema of the table that a name without a schema leads to, if that is not ours.
  SELECT nspname::text FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
  WHERE c.oid = pg_catalog.to_regclass(pg_catalog.quote_ident({{locks_name}})) AND nspname <> {{schema_text}}
