-- KEYS  lock. Returns {now, record or nil}.

return {now, call('GET', KEYS[1])}
