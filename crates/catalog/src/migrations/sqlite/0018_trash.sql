-- When the row was committed, to the millisecond: last_modified is in whole seconds, and keeps its value when an object
-- is restored from trash. 0: before this column existed.
ALTER TABLE objects ADD COLUMN committed_at INTEGER NOT NULL DEFAULT 0;

-- Objects that were deleted by prefix and can be restored. Each row is a reference to its content.
-- AUTOINCREMENT: of two rows of one key, the one with the higher number was deleted later.
CREATE TABLE trash_objects (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    bucket_id      INTEGER NOT NULL REFERENCES buckets (id),
    key            TEXT NOT NULL,
    content_id     TEXT NOT NULL REFERENCES contents (id),
    version_id     TEXT NOT NULL,
    size_bytes     INTEGER NOT NULL CHECK (size_bytes >= 0),
    etag           TEXT NOT NULL,
    checksum       TEXT,
    headers        TEXT NOT NULL,
    metadata       TEXT NOT NULL,
    tags           TEXT NOT NULL,
    last_modified  INTEGER NOT NULL,
    expires_at     INTEGER,
    deleted_at     INTEGER NOT NULL,
    -- End of the longest retention that applied so far.
    purge_at       INTEGER NOT NULL,
    -- 0 once a later version of the key was purged: restoring this one would bring back an outdated state.
    restorable     INTEGER NOT NULL DEFAULT 1,
    -- Marks the rows that one unit works on, and rows that could not be purged.
    token          TEXT
) STRICT;
CREATE INDEX trash_objects_key ON trash_objects (bucket_id, key, id);
CREATE INDEX trash_objects_content ON trash_objects (content_id);
CREATE INDEX trash_objects_purge ON trash_objects (purge_at) WHERE token IS NULL;
CREATE INDEX trash_objects_deleted ON trash_objects (deleted_at);
CREATE INDEX trash_objects_expiry ON trash_objects (expires_at) WHERE expires_at IS NOT NULL AND token IS NULL;
CREATE INDEX trash_objects_token ON trash_objects (token) WHERE token IS NOT NULL;

-- Operations on all keys of a prefix that have not ended: 'rm' moves objects to trash, 'restore' moves them back, and
-- 'purge' empties the trash. Two operations never run on the same key at the same time.
CREATE TABLE prefix_operations (
    id           TEXT PRIMARY KEY,
    kind         TEXT NOT NULL,
    bucket_id    INTEGER NOT NULL,
    prefix       TEXT NOT NULL,
    -- Greater than every key with the prefix, and not greater than any later key.
    range_end    TEXT NOT NULL,
    -- Only what was committed or deleted up to this moment.
    cutoff       INTEGER NOT NULL,
    retention    INTEGER NOT NULL,
    -- The next key to work on.
    position     TEXT NOT NULL,
    objects      INTEGER NOT NULL DEFAULT 0,
    bytes        INTEGER NOT NULL DEFAULT 0,
    existing     INTEGER NOT NULL DEFAULT 0,
    expired      INTEGER NOT NULL DEFAULT 0,
    -- 1 once it restored joined content, whose pieces may lack copies.
    joined       INTEGER NOT NULL DEFAULT 0,
    -- The instance that works on it holds the token; after the lease another one may take over.
    token        TEXT NOT NULL,
    lease_until  INTEGER NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Locked by a unit that begins an operation, so that two of them see each other.
CREATE TABLE prefix_operation_starts (
    only_row  INTEGER PRIMARY KEY CHECK (only_row = 1),
    started   INTEGER NOT NULL
) STRICT;
INSERT INTO prefix_operation_starts (only_row, started) VALUES (1, 0);
