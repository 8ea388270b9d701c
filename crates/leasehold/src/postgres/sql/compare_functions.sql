-- Quotes are of no meaning in what the server shows of arguments and results; a session may want
-- them everywhere.
SELECT wanted.name, wanted.public, wanted.added, found.oid IS NOT NULL AS there, found.proowner = owner.relowner AS owned,
  encode(sha256(convert_to(concat_ws(
    chr(10), replace(pg_get_function_arguments(found.oid), '"', ''), replace(pg_get_function_result(found.oid), '"', ''),
    lanname, provolatile, prosecdef, proisstrict, coalesce(array_to_string(proconfig, ','), ''), prosrc
  ), 'UTF8')), 'hex') = wanted.fingerprint AS same,
  coalesce(substring(prosrc FROM {{version_pattern}})::integer, 0) AS version,
  ({{elsewhere}}) AS elsewhere
FROM (VALUES {{wanted_functions}}) AS wanted(name, public, added, fingerprint)
  LEFT JOIN pg_proc AS found ON found.proname = wanted.name::name
    AND found.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = {{schema_text}})
  LEFT JOIN pg_language AS language ON language.oid = found.prolang
  LEFT JOIN pg_class AS owner ON owner.relnamespace = found.pronamespace AND owner.relname = {{locks_name}}
