-- What the functions for SQL clients need that the library does in Rust: names, checks and lock
-- ids. They read no table.

-- The key in Unicode NFC. ASCII is in that form already, so that old servers and other encodings
-- can take such keys too.
CREATE OR REPLACE FUNCTION {{check_key}}(key text) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  normal text := key;
BEGIN
  IF key COLLATE "C" ~ ('[^' || chr(1) || '-' || chr(127) || ']') THEN
    IF current_setting('server_version_num')::integer < 130000 OR current_setting('server_encoding') <> 'UTF8' THEN
      RAISE EXCEPTION 'this server can only take keys of ASCII characters' USING ERRCODE = '0A000',
        HINT = 'other keys need Unicode normalisation: PostgreSQL 13 or newer, and a database with encoding UTF8';
    END IF;
    normal := normalize(key);
  END IF;
  IF (octet_length(normal) BETWEEN 1 AND {{longest_key}}) IS NOT TRUE THEN
    RAISE EXCEPTION 'the key is empty or too long' USING ERRCODE = {{bad_key}},
      HINT = 'a key has 1 to {{longest_key}} bytes; of a longer text lock a hash';
  END IF;
  RETURN normal;
END $$;

-- The name that a text in NFC is stored under: the text itself, or 128 bits of its SHA-256 if it is
-- longer than allowed.
CREATE OR REPLACE FUNCTION {{storage_key}}(plain text, longest integer) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF octet_length(plain) <= longest THEN
    RETURN plain;
  END IF;
  RETURN {{base64url}}(substring(sha256(convert_to(plain, 'UTF8')) FOR 16));
END $$;

CREATE OR REPLACE FUNCTION {{base64url}}(bytes bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN translate(rtrim(encode(bytes, 'base64'), '='), '+/', '-_');
END $$;

-- A new lock id. A random UUID has 122 random bits, so that two of them are needed for the 128 that
-- every lock id has. An id with a hyphen in front would look like an option to a command.
CREATE OR REPLACE FUNCTION {{new_lock_id}}() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  id text;
BEGIN
  IF current_setting('server_version_num')::integer < 130000 THEN
    RAISE EXCEPTION 'this server cannot make lock ids' USING ERRCODE = '0A000',
      HINT = 'give a lock_id: 16 random bytes in base64url; or use PostgreSQL 13 or newer';
  END IF;
  LOOP
    id := {{base64url}}(substring(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) FOR 16));
    EXIT WHEN left(id, 1) <> '-';
  END LOOP;
  RETURN id;
END $$;

CREATE OR REPLACE FUNCTION {{check_lock_id}}(lock_id text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF (char_length(lock_id) = {{lock_id_length}} AND lock_id COLLATE "C" !~ '[^A-Za-z0-9_-]') IS NOT TRUE THEN
    RAISE EXCEPTION 'the lock id is malformed' USING ERRCODE = {{bad_lock_id}},
      HINT = 'a lock id is {{lock_id_length}} characters of A-Z, a-z, 0-9, _ and -';
  END IF;
  RETURN lock_id;
END $$;

-- The ttl in milliseconds. NaN is above every number here, and so refused with infinity.
CREATE OR REPLACE FUNCTION {{check_ttl}}(ttl_seconds double precision) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF (ttl_seconds BETWEEN 0.001::double precision AND {{longest_ttl_s}}::double precision) IS NOT TRUE THEN
    RAISE EXCEPTION 'the ttl is not between one millisecond and ten years' USING ERRCODE = {{bad_ttl}},
      HINT = 'give seconds, for example {{default_ttl_s}}';
  END IF;
  RETURN round(ttl_seconds * 1000::double precision)::bigint;
END $$;

-- The holder's name. By default the client's address and its application_name, or the user if it
-- gave none: the same after a restart, as a process number is not.
CREATE OR REPLACE FUNCTION {{check_holder}}(holder text) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  program text := coalesce(nullif(current_setting('application_name'), ''), session_user::text);
  name text := holder;
BEGIN
  IF holder IS NULL THEN
    name := coalesce(host(inet_client_addr()), 'local') || '/' || regexp_replace(program, '[[:cntrl:]]', '?', 'g');
  END IF;
  IF name = '' OR octet_length(convert_to(name, 'UTF8')) > {{longest_holder}} OR name ~ '[[:cntrl:]]' THEN
    RAISE EXCEPTION 'the name of the holder is empty, too long or has control characters' USING ERRCODE = {{bad_holder}},
      HINT = 'a name has 1 to {{longest_holder}} bytes, for example web-1/billing';
  END IF;
  RETURN name;
END $$;

-- What is stored beside the lock, as the library stores it. Metadata is JSON in a string.
CREATE OR REPLACE FUNCTION {{check_details}}(lock_id text, holder text, metadata jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
  details jsonb := jsonb_build_object('lockId', lock_id, 'holder', {{check_holder}}(holder));
BEGIN
  IF jsonb_typeof(metadata) <> 'object' OR octet_length(convert_to(metadata::text, 'UTF8')) > {{longest_metadata}} THEN
    RAISE EXCEPTION 'the metadata is no JSON object or too long' USING ERRCODE = {{bad_metadata}},
      HINT = 'an object of at most {{longest_metadata}} bytes; store a reference to the data instead of the data';
  END IF;
  IF jsonb_path_exists(metadata, {{too_deep}}::jsonpath) THEN
    RAISE EXCEPTION 'the metadata is nested too deep' USING ERRCODE = {{bad_metadata}},
      HINT = 'at most {{deepest_metadata}} levels, the object itself included';
  END IF;
  -- Readers count with doubles: what they cannot read back would hide all the rest.
  IF jsonb_path_exists(metadata, {{too_large}}::jsonpath) THEN
    RAISE EXCEPTION 'the metadata has a number that is too large' USING ERRCODE = {{bad_metadata}},
      HINT = 'write it as text';
  END IF;
  IF metadata <> '{}'::jsonb THEN
    details := details || jsonb_build_object('metadata', metadata::text);
  END IF;
  RETURN details;
END $$;

-- Milliseconds since 1970 as a time, within the years that every client can read, whatever other
-- programs have written.
CREATE OR REPLACE FUNCTION {{to_time}}(ms bigint) RETURNS timestamp with time zone LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN to_timestamp(greatest(0::bigint, least(ms, 253402300799999::bigint))::double precision / 1000::double precision);
END $$;
