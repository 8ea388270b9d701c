SELECT h.user_key, h.lock_id, h.fence, h.acquired_at_ms, h.expires_at_ms, h.details::text, h.key,
  h.class, h.permits, h.slot
FROM ({{held}}) AS h
