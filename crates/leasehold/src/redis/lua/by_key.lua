-- KEYS  lock. Returns {now, record or nil}.

return {now, redis.call('GET', KEYS[1])}
