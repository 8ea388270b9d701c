-- Locks as somebody would keep them by hand: a row that is inserted and deleted, and one that stays.
CREATE TABLE inserted (key text PRIMARY KEY, lock_id text NOT NULL UNIQUE, expires_at timestamptz NOT NULL);
CREATE TABLE upserted (key text PRIMARY KEY, lock_id text NOT NULL UNIQUE, expires_at timestamptz NOT NULL);
