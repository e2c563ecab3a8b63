-- The number under which a cleanup was first queued; null until it comes back as a retried dead letter.
ALTER TABLE cleanup_queue ADD COLUMN original_id BIGINT;

-- Cleanups that were refused too often. Their bytes still are on the backend and in its orphan bytes.
-- A number that an operator has read never comes to mean another dead letter.
CREATE TABLE cleanup_dlq (
    id               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    original_id      BIGINT NOT NULL,
    backend_name     TEXT COLLATE "C" NOT NULL,
    physical_key     TEXT COLLATE "C" NOT NULL,
    backend_version  TEXT COLLATE "C",
    backend_upload   TEXT COLLATE "C",
    size_bytes       BIGINT NOT NULL CHECK (size_bytes >= 0),
    stripe           BIGINT NOT NULL,
    reason           TEXT COLLATE "C" NOT NULL,
    attempts         BIGINT NOT NULL,
    last_error       TEXT COLLATE "C",
    absent_ok_after  BIGINT,
    created_at       BIGINT NOT NULL,
    dead_since       BIGINT NOT NULL,
    -- Marks the rows that one unit works on.
    token            TEXT COLLATE "C",
    UNIQUE (backend_name, physical_key)
);
CREATE INDEX cleanup_dlq_token ON cleanup_dlq (token) WHERE token IS NOT NULL;

-- What somebody has to know of bytes and rows that do not agree. 'written_off': bytes that left the books on
-- request although nobody proved them gone; used + orphan + reserved + written off is what the backend holds.
CREATE TABLE findings (
    id               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind             TEXT COLLATE "C" NOT NULL,
    backend_name     TEXT COLLATE "C" NOT NULL,
    physical_key     TEXT COLLATE "C" NOT NULL,
    size_bytes       BIGINT NOT NULL CHECK (size_bytes >= 0),
    stripe           BIGINT,
    detail           TEXT COLLATE "C" NOT NULL,
    created_at       BIGINT NOT NULL,
    UNIQUE (backend_name, physical_key, kind)
);
