-- A cleanup, a dead letter or a finding names one target under its key: '' (the object), 'version:ID', 'upload:ID',
-- 'upload' (every unfinished upload: the ID is lost) or 'draft' (a temporary file, whose path is the key).
-- expected: the bytes that other programs may have replaced, as JSON; they are compared before every attempt.

-- Until now, a row with an upload aborted it and deleted the object. It becomes two rows. The one of the object keeps the
-- number and the bytes. The one of the upload keeps the number under which it was first queued.
CREATE TABLE cleanup_queue_rebuilt (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    original_id      INTEGER,
    backend_name     TEXT NOT NULL,
    physical_key     TEXT NOT NULL,
    target           TEXT NOT NULL DEFAULT '',
    expected         TEXT,
    size_bytes       INTEGER NOT NULL CHECK (size_bytes >= 0),
    stripe           INTEGER NOT NULL,
    reason           TEXT NOT NULL,
    attempts         INTEGER NOT NULL DEFAULT 0,
    last_error       TEXT,
    due              INTEGER NOT NULL,
    absent_ok_after  INTEGER,
    claimed_by       TEXT,
    claimed_at       INTEGER,
    token            TEXT,
    created_at       INTEGER NOT NULL,
    UNIQUE (backend_name, physical_key, target)
) STRICT;
INSERT INTO sqlite_sequence (name, seq) SELECT 'cleanup_queue_rebuilt', seq FROM sqlite_sequence WHERE name = 'cleanup_queue';
INSERT INTO cleanup_queue_rebuilt (id, original_id, backend_name, physical_key, target, size_bytes, stripe, reason, attempts, last_error, due, absent_ok_after,
    claimed_by, claimed_at, token, created_at)
    SELECT id, original_id, backend_name, physical_key, coalesce('version:' || backend_version, ''),
    size_bytes, stripe, reason, attempts, last_error, due, absent_ok_after,
    claimed_by, claimed_at, token, created_at
    FROM cleanup_queue;
INSERT INTO cleanup_queue_rebuilt (original_id, backend_name, physical_key, target, size_bytes, stripe, reason, attempts,
    last_error, due, absent_ok_after, claimed_by, claimed_at, token, created_at)
    SELECT coalesce(original_id, id), backend_name, physical_key,
    CASE backend_upload WHEN '?' THEN 'upload' ELSE 'upload:' || substr(backend_upload, 4) END,
    0, stripe, reason, attempts, last_error, due, absent_ok_after, claimed_by, claimed_at, token, created_at
    FROM cleanup_queue WHERE backend_upload IS NOT NULL ORDER BY id;
DROP TABLE cleanup_queue;
ALTER TABLE cleanup_queue_rebuilt RENAME TO cleanup_queue;
CREATE INDEX cleanup_queue_due ON cleanup_queue (backend_name, due, id) WHERE token IS NULL;
CREATE INDEX cleanup_queue_claimed ON cleanup_queue (claimed_at) WHERE token IS NOT NULL;

CREATE TABLE cleanup_dlq_rebuilt (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    original_id      INTEGER NOT NULL,
    backend_name     TEXT NOT NULL,
    physical_key     TEXT NOT NULL,
    target           TEXT NOT NULL DEFAULT '',
    expected         TEXT,
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
    UNIQUE (backend_name, physical_key, target)
) STRICT;
INSERT INTO sqlite_sequence (name, seq) SELECT 'cleanup_dlq_rebuilt', seq FROM sqlite_sequence WHERE name = 'cleanup_dlq';
INSERT INTO cleanup_dlq_rebuilt (id, original_id, backend_name, physical_key, target, size_bytes, stripe, reason, attempts, last_error, absent_ok_after,
    created_at, dead_since, token)
    SELECT id, original_id, backend_name, physical_key, coalesce('version:' || backend_version, ''),
    size_bytes, stripe, reason, attempts, last_error, absent_ok_after,
    created_at, dead_since, token
    FROM cleanup_dlq;
INSERT INTO cleanup_dlq_rebuilt (original_id, backend_name, physical_key, target, size_bytes, stripe, reason, attempts,
    last_error, absent_ok_after, created_at, dead_since, token)
    SELECT original_id, backend_name, physical_key,
    CASE backend_upload WHEN '?' THEN 'upload' ELSE 'upload:' || substr(backend_upload, 4) END,
    0, stripe, reason, attempts, last_error, absent_ok_after, created_at, dead_since, token
    FROM cleanup_dlq WHERE backend_upload IS NOT NULL ORDER BY id;
DROP TABLE cleanup_dlq;
ALTER TABLE cleanup_dlq_rebuilt RENAME TO cleanup_dlq;
CREATE INDEX cleanup_dlq_token ON cleanup_dlq (token) WHERE token IS NOT NULL;

CREATE TABLE findings_rebuilt (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    kind             TEXT NOT NULL,
    backend_name     TEXT NOT NULL,
    physical_key     TEXT NOT NULL,
    target           TEXT NOT NULL DEFAULT '',
    size_bytes       INTEGER NOT NULL CHECK (size_bytes >= 0),
    stripe           INTEGER,
    detail           TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    UNIQUE (backend_name, physical_key, target, kind)
) STRICT;
INSERT INTO sqlite_sequence (name, seq) SELECT 'findings_rebuilt', seq FROM sqlite_sequence WHERE name = 'findings';
INSERT INTO findings_rebuilt (id, kind, backend_name, physical_key, size_bytes, stripe, detail, created_at)
    SELECT id, kind, backend_name, physical_key, size_bytes, stripe, detail, created_at
    FROM findings;
DROP TABLE findings;
ALTER TABLE findings_rebuilt RENAME TO findings;

-- Cleanups of keys that no other row named: a backend has a limited number of them at a time.
CREATE INDEX cleanup_queue_unnamed ON cleanup_queue (backend_name) WHERE reason IN ('reconcile', 'sweep');

-- One row for each backend. A unit that queues keys which no row names locks it; a unit that names a key whose bytes
-- exist already shares it. Intents need neither: their keys are new.
CREATE TABLE backend_key_locks (
    backend_name  TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO backend_key_locks (backend_name) SELECT name FROM backends;
