-- Moments are milliseconds since the Unix epoch. Identifiers are UUIDs as 32 hexadecimal digits.
-- Text is compared as bytes, which for UTF-8 is S3's key order.

CREATE TABLE cluster (
    only_row    BIGINT PRIMARY KEY CHECK (only_row = 1),
    cluster_id  TEXT COLLATE "C" NOT NULL
);

-- A bucket's number is never reused, so rows of a deleted one cannot become a new one's.
CREATE TABLE buckets (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        TEXT COLLATE "C" NOT NULL UNIQUE,
    created_at  BIGINT NOT NULL,
    tags        TEXT COLLATE "C" NOT NULL DEFAULT '{}'
);

CREATE TABLE contents (
    id            TEXT COLLATE "C" PRIMARY KEY,
    kind          TEXT COLLATE "C" NOT NULL CHECK (kind IN ('whole', 'joined')),
    dedup_bucket  BIGINT,
    sha256        TEXT COLLATE "C",
    md5           TEXT COLLATE "C",
    size_bytes    BIGINT NOT NULL CHECK (size_bytes >= 0),
    ref_count     BIGINT NOT NULL CHECK (ref_count >= 0),
    state         TEXT COLLATE "C" NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'condemned')),
    condemned_at  BIGINT
);
CREATE UNIQUE INDEX contents_dedup ON contents (dedup_bucket, sha256, size_bytes)
    WHERE state = 'live' AND dedup_bucket IS NOT NULL;
-- The kind is no column of these: a unit that releases content would then search all that was condemned lately.
CREATE INDEX contents_condemned_whole ON contents (condemned_at) WHERE state = 'condemned' AND kind = 'whole';
CREATE INDEX contents_condemned_joined ON contents (condemned_at) WHERE state = 'condemned' AND kind = 'joined';

CREATE TABLE objects (
    bucket_id              BIGINT NOT NULL REFERENCES buckets (id),
    key                    TEXT COLLATE "C" NOT NULL,
    content_id             TEXT COLLATE "C" NOT NULL REFERENCES contents (id),
    -- What the last write displaced; the unit that wrote it releases it.
    prev_content_id        TEXT COLLATE "C",
    version_id             TEXT COLLATE "C" NOT NULL,
    size_bytes             BIGINT NOT NULL CHECK (size_bytes >= 0),
    etag                   TEXT COLLATE "C" NOT NULL,
    checksum               TEXT COLLATE "C",
    headers                TEXT COLLATE "C" NOT NULL,
    metadata               TEXT COLLATE "C" NOT NULL,
    tags                   TEXT COLLATE "C" NOT NULL,
    last_modified          BIGINT NOT NULL,
    expires_at             BIGINT,
    deletion_status        TEXT COLLATE "C" NOT NULL DEFAULT 'NOT_EXPIRED'
        CHECK (deletion_status IN ('NOT_EXPIRED', 'DELETION_IN_PROGRESS', 'DELETED')),
    deletion_initiated_at  BIGINT,
    -- Marks the rows that one unit works on.
    token                  TEXT COLLATE "C",
    PRIMARY KEY (bucket_id, key)
);
CREATE INDEX objects_content ON objects (content_id);
CREATE INDEX objects_token ON objects (token) WHERE token IS NOT NULL;

CREATE TABLE content_parts (
    joined_id   TEXT COLLATE "C" NOT NULL REFERENCES contents (id),
    number      BIGINT NOT NULL,
    start       BIGINT NOT NULL,
    whole_id    TEXT COLLATE "C" NOT NULL REFERENCES contents (id),
    byte_offset BIGINT NOT NULL,
    length      BIGINT NOT NULL,
    checksum    TEXT COLLATE "C",
    PRIMARY KEY (joined_id, number)
);
CREATE INDEX content_parts_start ON content_parts (joined_id, start);
CREATE INDEX content_parts_whole ON content_parts (whole_id);

CREATE TABLE object_locations (
    content_id       TEXT COLLATE "C" NOT NULL REFERENCES contents (id),
    backend_name     TEXT COLLATE "C" NOT NULL,
    physical_key     TEXT COLLATE "C" NOT NULL,
    backend_version  TEXT COLLATE "C",
    size_bytes       BIGINT NOT NULL CHECK (size_bytes >= 0),
    stripe           BIGINT NOT NULL,
    state            TEXT COLLATE "C" NOT NULL DEFAULT 'present' CHECK (state IN ('present', 'suspect', 'lost')),
    verified_at      BIGINT,
    PRIMARY KEY (content_id, backend_name)
);
CREATE UNIQUE INDEX object_locations_key ON object_locations (backend_name, physical_key);

CREATE TABLE pending_objects (
    id               TEXT COLLATE "C" PRIMARY KEY,
    write_id         TEXT COLLATE "C" NOT NULL,
    kind             TEXT COLLATE "C" NOT NULL CHECK (kind IN ('object', 'part', 'copy', 'pin')),
    bucket_id        BIGINT NOT NULL,
    key              TEXT COLLATE "C" NOT NULL,
    upload_id        TEXT COLLATE "C",
    part_number      BIGINT,
    backend_name     TEXT COLLATE "C",
    physical_key     TEXT COLLATE "C",
    backend_version  TEXT COLLATE "C",
    backend_upload   TEXT COLLATE "C",
    pin_content_id   TEXT COLLATE "C",
    size_bytes       BIGINT NOT NULL CHECK (size_bytes >= 0),
    stripe           BIGINT NOT NULL,
    owner            TEXT COLLATE "C" NOT NULL,
    lease_until      BIGINT NOT NULL,
    state            TEXT COLLATE "C" NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'aborting')),
    superseded       BIGINT NOT NULL DEFAULT 0,
    token            TEXT COLLATE "C",
    created_at       BIGINT NOT NULL
);
CREATE INDEX pending_objects_write ON pending_objects (write_id);
CREATE INDEX pending_objects_key ON pending_objects (bucket_id, key);
CREATE INDEX pending_objects_lease ON pending_objects (lease_until);
CREATE INDEX pending_objects_token ON pending_objects (token) WHERE token IS NOT NULL;
CREATE INDEX pending_objects_pin ON pending_objects (pin_content_id) WHERE pin_content_id IS NOT NULL;
CREATE UNIQUE INDEX pending_objects_place ON pending_objects (backend_name, physical_key);

CREATE TABLE cleanup_queue (
    id               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    backend_name     TEXT COLLATE "C" NOT NULL,
    physical_key     TEXT COLLATE "C" NOT NULL,
    backend_version  TEXT COLLATE "C",
    backend_upload   TEXT COLLATE "C",
    size_bytes       BIGINT NOT NULL CHECK (size_bytes >= 0),
    stripe           BIGINT NOT NULL,
    reason           TEXT COLLATE "C" NOT NULL,
    attempts         BIGINT NOT NULL DEFAULT 0,
    last_error       TEXT COLLATE "C",
    due              BIGINT NOT NULL,
    absent_ok_after  BIGINT,
    claimed_by       TEXT COLLATE "C",
    claimed_at       BIGINT,
    token            TEXT COLLATE "C",
    created_at       BIGINT NOT NULL,
    UNIQUE (backend_name, physical_key)
);
CREATE INDEX cleanup_queue_due ON cleanup_queue (backend_name, due, id) WHERE token IS NULL;
CREATE INDEX cleanup_queue_claimed ON cleanup_queue (claimed_at) WHERE token IS NOT NULL;

CREATE TABLE multipart_uploads (
    id          TEXT COLLATE "C" PRIMARY KEY,
    bucket_id   BIGINT NOT NULL,
    key         TEXT COLLATE "C" NOT NULL,
    headers     TEXT COLLATE "C" NOT NULL,
    metadata    TEXT COLLATE "C" NOT NULL,
    tags        TEXT COLLATE "C" NOT NULL,
    checksum    TEXT COLLATE "C",
    created_at  BIGINT NOT NULL,
    state       TEXT COLLATE "C" NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'completed', 'aborted')),
    answer      TEXT COLLATE "C",
    closed_at   BIGINT,
    -- 1 while a closed upload still holds parts, so that cleanup finds it among those kept for their answer.
    leftover    BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX multipart_uploads_open ON multipart_uploads (bucket_id, key, id) WHERE state = 'open';
CREATE INDEX multipart_uploads_closed ON multipart_uploads (state, closed_at);
CREATE INDEX multipart_uploads_leftover ON multipart_uploads (closed_at) WHERE leftover = 1;

CREATE TABLE multipart_parts (
    upload_id        TEXT COLLATE "C" NOT NULL REFERENCES multipart_uploads (id),
    number           BIGINT NOT NULL,
    content_id       TEXT COLLATE "C" NOT NULL REFERENCES contents (id),
    prev_content_id  TEXT COLLATE "C",
    byte_offset BIGINT NOT NULL,
    length           BIGINT NOT NULL,
    md5              TEXT COLLATE "C" NOT NULL,
    checksum         TEXT COLLATE "C",
    last_modified    BIGINT NOT NULL,
    PRIMARY KEY (upload_id, number)
);
CREATE INDEX multipart_parts_content ON multipart_parts (content_id);

CREATE TABLE backends (
    name           TEXT COLLATE "C" PRIMARY KEY,
    mark           TEXT COLLATE "C",
    next_mark      TEXT COLLATE "C",
    past_marks     TEXT COLLATE "C" NOT NULL DEFAULT '[]',
    frozen_reason  TEXT COLLATE "C",
    draining       BIGINT NOT NULL DEFAULT 0
);

-- One backend's books, split into stripes so that writers need not queue for one row. A backend
-- without a limit has no shares; those of one with a limit add up to it, and are shared anew when one runs out.
CREATE TABLE backend_quotas (
    backend_name    TEXT COLLATE "C" NOT NULL,
    stripe          BIGINT NOT NULL,
    share_bytes     BIGINT,
    used_bytes      BIGINT NOT NULL DEFAULT 0 CHECK (used_bytes >= 0),
    orphan_bytes    BIGINT NOT NULL DEFAULT 0 CHECK (orphan_bytes >= 0),
    reserved_bytes  BIGINT NOT NULL DEFAULT 0 CHECK (reserved_bytes >= 0),
    PRIMARY KEY (backend_name, stripe)
);
