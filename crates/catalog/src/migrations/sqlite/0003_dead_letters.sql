-- The number under which a cleanup was first queued; null until it comes back as a retried dead letter.
ALTER TABLE cleanup_queue ADD COLUMN original_id INTEGER;

-- Cleanups that were refused too often. Their bytes still are on the backend and in its orphan bytes.
-- AUTOINCREMENT: a number that an operator has read never comes to mean another dead letter.
CREATE TABLE cleanup_dlq (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    original_id      INTEGER NOT NULL,
    backend_name     TEXT NOT NULL,
    physical_key     TEXT NOT NULL,
    backend_version  TEXT,
    backend_upload   TEXT,
    size_bytes       INTEGER NOT NULL CHECK (size_bytes >= 0),
    stripe           INTEGER NOT NULL,
    reason           TEXT NOT NULL,
    attempts         INTEGER NOT NULL,
    last_error       TEXT,
    absent_ok_after  INTEGER,
    created_at       INTEGER NOT NULL,
    dead_since       INTEGER NOT NULL,
    -- Marks the rows that one unit works on.
    token            TEXT,
    UNIQUE (backend_name, physical_key)
) STRICT;
CREATE INDEX cleanup_dlq_token ON cleanup_dlq (token) WHERE token IS NOT NULL;

-- What somebody has to know of bytes and rows that do not agree. 'written_off': bytes that left the books on
-- request although nobody proved them gone; used + orphan + reserved + written off is what the backend holds.
CREATE TABLE findings (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    kind             TEXT NOT NULL,
    backend_name     TEXT NOT NULL,
    physical_key     TEXT NOT NULL,
    size_bytes       INTEGER NOT NULL CHECK (size_bytes >= 0),
    stripe           INTEGER,
    detail           TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    UNIQUE (backend_name, physical_key, kind)
) STRICT;
