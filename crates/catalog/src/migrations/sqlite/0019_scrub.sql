-- 1 if the bytes of the copy were read twice and had the same wrong digest both times. Such a copy is suspect or lost,
-- and is never served.
ALTER TABLE object_locations ADD COLUMN wrong_digest INTEGER NOT NULL DEFAULT 0 CHECK (wrong_digest IN (0, 1));
-- Copies that are written are present, so that no write changes this index.
CREATE INDEX object_locations_lost ON object_locations (content_id) WHERE state = 'lost';

-- The pass of the scrubber over the copies on each backend, in the order of their contents.
CREATE TABLE scrub_passes (
    backend_name  TEXT PRIMARY KEY,
    started_at    INTEGER NOT NULL,
    finished_at   INTEGER,
    -- The last content that existed when the pass began.
    upto          TEXT NOT NULL,
    -- The last content whose copy was read, or is noted in scrub_retries.
    position      TEXT NOT NULL DEFAULT '',
    -- Number of contents up to the end of the pass, and up to the position.
    total         INTEGER NOT NULL,
    done          INTEGER NOT NULL DEFAULT 0,
    -- Every copy was read or written since.
    read_since    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Copies that a pass could not read, or that take longer than one run.
CREATE TABLE scrub_retries (
    backend_name  TEXT NOT NULL,
    content_id    TEXT NOT NULL,
    due           INTEGER NOT NULL,
    attempts      INTEGER NOT NULL DEFAULT 0,
    last_error    TEXT,
    -- The copy was read or written since.
    read_since    INTEGER NOT NULL,
    PRIMARY KEY (backend_name, content_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX scrub_retries_due ON scrub_retries (backend_name, due);
