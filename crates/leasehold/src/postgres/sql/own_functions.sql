-- The public functions are of the newest version that was ever run here: an older one leaves them
-- as they are. All functions belong to the owner of the tables, whoever runs this and whoever made
-- one of the name before: the public ones run with the owner's rights. Who else may execute those
-- is for the owner to grant, whatever the database grants by default.
DO $migrate$
DECLARE
  owner oid := (SELECT relowner FROM pg_class WHERE oid = {{locks_text}}::regclass);
  public_ones text[] := ARRAY[{{public_signatures}}]::text[];
  all_of_them text[] := ARRAY[{{versioned_signatures}}]::text[] || public_ones;
  ours oid[] := ARRAY(
    SELECT p.oid FROM unnest(all_of_them) AS wanted JOIN pg_proc AS p ON p.oid = to_regprocedure(wanted)::oid
    WHERE p.proowner = owner
  );
  newest integer := (
    SELECT max(coalesce(substring(p.prosrc FROM {{version_pattern}})::integer, 0))
    FROM unnest(public_ones) AS wanted JOIN pg_proc AS p ON p.oid = to_regprocedure(wanted)::oid
    WHERE p.proowner = owner
  );
  signature text;
  grantee oid;
BEGIN
  IF newest IS NULL OR newest <= {{version}} THEN
    EXECUTE $public$
{{public_functions}}
$public$;
  END IF;
  FOREACH signature IN ARRAY all_of_them LOOP
    -- One that a newer version has no use for any more is not there.
    CONTINUE WHEN to_regprocedure(signature) IS NULL OR to_regprocedure(signature)::oid = ANY (ours);
    EXECUTE format('ALTER FUNCTION %s OWNER TO %s', signature, owner::regrole);
    CONTINUE WHEN signature <> ALL (public_ones);
    FOR grantee IN
      SELECT DISTINCT a.grantee FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
      WHERE p.oid = to_regprocedure(signature)::oid AND a.grantee <> owner
    LOOP
      EXECUTE format(
        'REVOKE ALL ON FUNCTION %s FROM %s', signature,
        CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
      );
    END LOOP;
  END LOOP;
END $migrate$;
