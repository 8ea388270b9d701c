SELECT l.user_key, l.lock_id, l.fence, l.acquired_at_ms, l.expires_at_ms, l.details::text,
  floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM {{locks}} AS l
