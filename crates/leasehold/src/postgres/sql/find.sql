SELECT l.user_key, l.lock_id, l.fence, l.acquired_at_ms, l.expires_at_ms, l.details::text,
  {{now_us}}, l.key
FROM {{locks}} AS l
