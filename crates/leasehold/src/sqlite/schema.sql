-- One row for each key that was ever locked. The row stays when the lock goes, because it carries the key's fence, which
-- must never be forgotten (rule 3). lock_id is null while nobody holds the lock.
CREATE TABLE locks (
    key            TEXT    NOT NULL PRIMARY KEY,
    fence          INTEGER NOT NULL,
    lock_id        TEXT,
    acquired_at_ms INTEGER NOT NULL,
    expires_at_ms  INTEGER NOT NULL,
    holder         TEXT,
    metadata       TEXT
) WITHOUT ROWID;

CREATE UNIQUE INDEX locks_by_lock_id ON locks (lock_id) WHERE lock_id IS NOT NULL;
CREATE INDEX locks_by_expiry ON locks (expires_at_ms) WHERE lock_id IS NOT NULL;

CREATE TRIGGER fences_are_kept BEFORE DELETE ON locks BEGIN
    SELECT RAISE(ABORT, 'rows carry fences and are never deleted');
END;

-- Who wants to hear of what: a key that is freed, or locks that are taken. The address is that of a datagram socket.
CREATE TABLE listeners (
    topic   TEXT NOT NULL,
    address TEXT NOT NULL,
    PRIMARY KEY (topic, address)
) WITHOUT ROWID;

CREATE INDEX listeners_by_address ON listeners (address);

-- What to add to the monotonic clock, in microseconds, to get the time that all processes of this boot go by.
CREATE TABLE clock (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    boot      TEXT    NOT NULL,
    offset_us INTEGER NOT NULL
);
