-- Moments are milliseconds since the Unix epoch. Identifiers are UUIDs as 32 hexadecimal digits.
-- Text is compared as bytes (SQLite's default collation), which for UTF-8 is S3's key order.

CREATE TABLE cluster (
    only_row    INTEGER PRIMARY KEY CHECK (only_row = 1),
    cluster_id  TEXT NOT NULL
) STRICT;

-- AUTOINCREMENT: a bucket's number is never reused, so rows of a deleted one cannot become a new one's.
CREATE TABLE buckets (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    name        TEXT NOT NULL UNIQUE,
    created_at  INTEGER NOT NULL,
    tags        TEXT NOT NULL DEFAULT '{}'
) STRICT;

CREATE TABLE contents (
    id            TEXT PRIMARY KEY,
    kind          TEXT NOT NULL CHECK (kind IN ('whole', 'joined')),
    dedup_bucket  INTEGER,
    sha256        TEXT,
    md5           TEXT,
    size_bytes    INTEGER NOT NULL CHECK (size_bytes >= 0),
    ref_count     INTEGER NOT NULL CHECK (ref_count >= 0),
    state         TEXT NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'condemned')),
    condemned_at  INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX contents_dedup ON contents (dedup_bucket, sha256, size_bytes)
    WHERE state = 'live' AND dedup_bucket IS NOT NULL;
-- The kind is no column of these: a unit that releases content would then search all that was condemned lately.
CREATE INDEX contents_condemned_whole ON contents (condemned_at) WHERE state = 'condemned' AND kind = 'whole';
CREATE INDEX contents_condemned_joined ON contents (condemned_at) WHERE state = 'condemned' AND kind = 'joined';

CREATE TABLE objects (
    bucket_id              INTEGER NOT NULL REFERENCES buckets (id),
    key                    TEXT NOT NULL,
    content_id             TEXT NOT NULL REFERENCES contents (id),
    -- What the last write displaced; the unit that wrote it releases it.
    prev_content_id        TEXT,
    version_id             TEXT NOT NULL,
    size_bytes             INTEGER NOT NULL CHECK (size_bytes >= 0),
    etag                   TEXT NOT NULL,
    checksum               TEXT,
    headers                TEXT NOT NULL,
    metadata               TEXT NOT NULL,
    tags                   TEXT NOT NULL,
    last_modified          INTEGER NOT NULL,
    expires_at             INTEGER,
    deletion_status        TEXT NOT NULL DEFAULT 'NOT_EXPIRED'
        CHECK (deletion_status IN ('NOT_EXPIRED', 'DELETION_IN_PROGRESS', 'DELETED')),
    deletion_initiated_at  INTEGER,
    -- Marks the rows that one unit works on.
    token                  TEXT,
    PRIMARY KEY (bucket_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX objects_content ON objects (content_id);
CREATE INDEX objects_token ON objects (token) WHERE token IS NOT NULL;

CREATE TABLE content_parts (
    joined_id   TEXT NOT NULL REFERENCES contents (id),
    number      INTEGER NOT NULL,
    start       INTEGER NOT NULL,
    whole_id    TEXT NOT NULL REFERENCES contents (id),
    byte_offset INTEGER NOT NULL,
    length      INTEGER NOT NULL,
    checksum    TEXT,
    PRIMARY KEY (joined_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX content_parts_start ON content_parts (joined_id, start);
CREATE INDEX content_parts_whole ON content_parts (whole_id);

CREATE TABLE object_locations (
    content_id       TEXT NOT NULL REFERENCES contents (id),
    backend_name     TEXT NOT NULL,
    physical_key     TEXT NOT NULL,
    backend_version  TEXT,
    size_bytes       INTEGER NOT NULL CHECK (size_bytes >= 0),
    stripe           INTEGER NOT NULL,
    state            TEXT NOT NULL DEFAULT 'present' CHECK (state IN ('present', 'suspect', 'lost')),
    verified_at      INTEGER,
    PRIMARY KEY (content_id, backend_name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX object_locations_key ON object_locations (backend_name, physical_key);

CREATE TABLE pending_objects (
    id               TEXT PRIMARY KEY,
    write_id         TEXT NOT NULL,
    kind             TEXT NOT NULL CHECK (kind IN ('object', 'part', 'copy', 'pin')),
    bucket_id        INTEGER NOT NULL,
    key              TEXT NOT NULL,
    upload_id        TEXT,
    part_number      INTEGER,
    backend_name     TEXT,
    physical_key     TEXT,
    backend_version  TEXT,
    backend_upload   TEXT,
    pin_content_id   TEXT,
    size_bytes       INTEGER NOT NULL CHECK (size_bytes >= 0),
    stripe           INTEGER NOT NULL,
    owner            TEXT NOT NULL,
    lease_until      INTEGER NOT NULL,
    state            TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'aborting')),
    superseded       INTEGER NOT NULL DEFAULT 0,
    token            TEXT,
    created_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX pending_objects_write ON pending_objects (write_id);
CREATE INDEX pending_objects_key ON pending_objects (bucket_id, key);
CREATE INDEX pending_objects_lease ON pending_objects (lease_until);
CREATE INDEX pending_objects_token ON pending_objects (token) WHERE token IS NOT NULL;
CREATE INDEX pending_objects_pin ON pending_objects (pin_content_id) WHERE pin_content_id IS NOT NULL;
CREATE UNIQUE INDEX pending_objects_place ON pending_objects (backend_name, physical_key);

CREATE TABLE cleanup_queue (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    backend_name     TEXT NOT NULL,
    physical_key     TEXT NOT NULL,
    backend_version  TEXT,
    backend_upload   TEXT,
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
    UNIQUE (backend_name, physical_key)
) STRICT;
CREATE INDEX cleanup_queue_due ON cleanup_queue (backend_name, due, id) WHERE token IS NULL;
CREATE INDEX cleanup_queue_claimed ON cleanup_queue (claimed_at) WHERE token IS NOT NULL;

CREATE TABLE multipart_uploads (
    id          TEXT PRIMARY KEY,
    bucket_id   INTEGER NOT NULL,
    key         TEXT NOT NULL,
    headers     TEXT NOT NULL,
    metadata    TEXT NOT NULL,
    tags        TEXT NOT NULL,
    checksum    TEXT,
    created_at  INTEGER NOT NULL,
    state       TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'completed', 'aborted')),
    answer      TEXT,
    closed_at   INTEGER,
    -- 1 while a closed upload still holds parts, so that cleanup finds it among those kept for their answer.
    leftover    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX multipart_uploads_open ON multipart_uploads (bucket_id, key, id) WHERE state = 'open';
CREATE INDEX multipart_uploads_closed ON multipart_uploads (state, closed_at);
CREATE INDEX multipart_uploads_leftover ON multipart_uploads (closed_at) WHERE leftover = 1;

CREATE TABLE multipart_parts (
    upload_id        TEXT NOT NULL REFERENCES multipart_uploads (id),
    number           INTEGER NOT NULL,
    content_id       TEXT NOT NULL REFERENCES contents (id),
    prev_content_id  TEXT,
    byte_offset INTEGER NOT NULL,
    length           INTEGER NOT NULL,
    md5              TEXT NOT NULL,
    checksum         TEXT,
    last_modified    INTEGER NOT NULL,
    PRIMARY KEY (upload_id, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX multipart_parts_content ON multipart_parts (content_id);

CREATE TABLE backends (
    name           TEXT PRIMARY KEY,
    mark           TEXT,
    next_mark      TEXT,
    past_marks     TEXT NOT NULL DEFAULT '[]',
    frozen_reason  TEXT,
    draining       INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- One backend's books, split into stripes so that writers need not queue for one row. A backend
-- without a limit has no shares; those of one with a limit add up to it, and are shared anew when one runs out.
CREATE TABLE backend_quotas (
    backend_name    TEXT NOT NULL,
    stripe          INTEGER NOT NULL,
    share_bytes     INTEGER,
    used_bytes      INTEGER NOT NULL DEFAULT 0 CHECK (used_bytes >= 0),
    orphan_bytes    INTEGER NOT NULL DEFAULT 0 CHECK (orphan_bytes >= 0),
    reserved_bytes  INTEGER NOT NULL DEFAULT 0 CHECK (reserved_bytes >= 0),
    PRIMARY KEY (backend_name, stripe)
) STRICT, WITHOUT ROWID;
