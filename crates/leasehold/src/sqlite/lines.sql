-- Who holds a key together with others. The row of the key in locks is a placeholder then: whoever reads only that table
-- sees a lock that lasts as long as the longest of these. A row counts only while its placeholder is there.
CREATE TABLE IF NOT EXISTS grants (
    key            TEXT    NOT NULL,
    fence          INTEGER NOT NULL,
    lock_id        TEXT    NOT NULL UNIQUE,
    placeholder    TEXT    NOT NULL,
    acquired_at_ms INTEGER NOT NULL CHECK (typeof(acquired_at_ms) = 'integer'),
    expires_at_ms  INTEGER NOT NULL CHECK (typeof(expires_at_ms) = 'integer'),
    mode           TEXT    NOT NULL CHECK (mode IN ('shared', 'permit')),
    permits        INTEGER CHECK ((permits IS NULL) = (mode = 'shared')),
    slot           INTEGER CHECK ((slot IS NULL) = (mode = 'shared')),
    holder         TEXT,
    metadata       TEXT,
    PRIMARY KEY (key, fence)
) WITHOUT ROWID;

-- A permit is an exclusive lock of its own.
CREATE UNIQUE INDEX IF NOT EXISTS grants_by_slot ON grants (key, slot) WHERE slot IS NOT NULL;

-- Who waits for a key, in the order of the places. A place is its owner's until until_ms, without tolerance.
CREATE TABLE IF NOT EXISTS line (
    key      TEXT    NOT NULL,
    place    INTEGER NOT NULL,
    lock_id  TEXT    NOT NULL UNIQUE,
    until_ms INTEGER NOT NULL CHECK (typeof(until_ms) = 'integer'),
    called   INTEGER NOT NULL CHECK (called IN (0, 1)),
    mode     TEXT    NOT NULL CHECK (mode IN ('exclusive', 'shared', 'permit')),
    permits  INTEGER CHECK ((permits IS NULL) = (mode <> 'permit')),
    since_ms INTEGER NOT NULL CHECK (typeof(since_ms) = 'integer'),
    holder   TEXT,
    metadata TEXT,
    PRIMARY KEY (key, place)
) WITHOUT ROWID;
