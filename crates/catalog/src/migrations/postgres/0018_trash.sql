-- When the row was committed, to the millisecond: last_modified is in whole seconds, and keeps its value when an object
-- is restored from trash. 0: before this column existed.
ALTER TABLE objects ADD COLUMN committed_at BIGINT NOT NULL DEFAULT 0;

-- Objects that were deleted by prefix and can be restored. Each row is a reference to its content.
-- Of two rows of one key, the one with the higher number was deleted later.
CREATE TABLE trash_objects (
    id             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bucket_id      BIGINT NOT NULL REFERENCES buckets (id),
    key            TEXT COLLATE "C" NOT NULL,
    content_id     TEXT COLLATE "C" NOT NULL REFERENCES contents (id),
    version_id     TEXT COLLATE "C" NOT NULL,
    size_bytes     BIGINT NOT NULL CHECK (size_bytes >= 0),
    etag           TEXT COLLATE "C" NOT NULL,
    checksum       TEXT COLLATE "C",
    headers        TEXT COLLATE "C" NOT NULL,
    metadata       TEXT COLLATE "C" NOT NULL,
    tags           TEXT COLLATE "C" NOT NULL,
    last_modified  BIGINT NOT NULL,
    expires_at     BIGINT,
    deleted_at     BIGINT NOT NULL,
    -- End of the longest retention that applied so far.
    purge_at       BIGINT NOT NULL,
    -- 0 once a later version of the key was purged: restoring this one would bring back an outdated state.
    restorable     BIGINT NOT NULL DEFAULT 1,
    -- Marks the rows that one unit works on, and rows that could not be purged.
    token          TEXT COLLATE "C"
);
CREATE INDEX trash_objects_key ON trash_objects (bucket_id, key, id);
CREATE INDEX trash_objects_content ON trash_objects (content_id);
CREATE INDEX trash_objects_purge ON trash_objects (purge_at) WHERE token IS NULL;
CREATE INDEX trash_objects_deleted ON trash_objects (deleted_at);
CREATE INDEX trash_objects_expiry ON trash_objects (expires_at) WHERE expires_at IS NOT NULL AND token IS NULL;
CREATE INDEX trash_objects_token ON trash_objects (token) WHERE token IS NOT NULL;

-- Operations on all keys of a prefix that have not ended: 'rm' moves objects to trash, 'restore' moves them back, and
-- 'purge' empties the trash. Two operations never run on the same key at the same time.
CREATE TABLE prefix_operations (
    id           TEXT COLLATE "C" PRIMARY KEY,
    kind         TEXT COLLATE "C" NOT NULL,
    bucket_id    BIGINT NOT NULL,
    prefix       TEXT COLLATE "C" NOT NULL,
    -- Greater than every key with the prefix, and not greater than any later key.
    range_end    TEXT COLLATE "C" NOT NULL,
    -- Only what was committed or deleted up to this moment.
    cutoff       BIGINT NOT NULL,
    retention    BIGINT NOT NULL,
    -- The next key to work on.
    position     TEXT COLLATE "C" NOT NULL,
    objects      BIGINT NOT NULL DEFAULT 0,
    bytes        BIGINT NOT NULL DEFAULT 0,
    existing     BIGINT NOT NULL DEFAULT 0,
    expired      BIGINT NOT NULL DEFAULT 0,
    -- 1 once it restored joined content, whose pieces may lack copies.
    joined       BIGINT NOT NULL DEFAULT 0,
    -- The instance that works on it holds the token; after the lease another one may take over.
    token        TEXT COLLATE "C" NOT NULL,
    lease_until  BIGINT NOT NULL,
    created_at   BIGINT NOT NULL
);

-- Locked by a unit that begins an operation, so that two of them see each other.
CREATE TABLE prefix_operation_starts (
    only_row  BIGINT PRIMARY KEY CHECK (only_row = 1),
    started   BIGINT NOT NULL
);
INSERT INTO prefix_operation_starts (only_row, started) VALUES (1, 0);
