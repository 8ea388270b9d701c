-- Forgets places whose time is over at ?1.
DELETE FROM line WHERE until_ms <= ?1
