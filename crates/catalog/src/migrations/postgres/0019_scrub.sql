-- 1 if the bytes of the copy were read twice and had the same wrong digest both times. Such a copy is suspect or lost,
-- and is never served.
ALTER TABLE object_locations ADD COLUMN wrong_digest BIGINT NOT NULL DEFAULT 0 CHECK (wrong_digest IN (0, 1));
-- Copies that are written are present, so that no write changes this index.
CREATE INDEX object_locations_lost ON object_locations (content_id) WHERE state = 'lost';

-- The pass of the scrubber over the copies on each backend, in the order of their contents.
CREATE TABLE scrub_passes (
    backend_name  TEXT COLLATE "C" PRIMARY KEY,
    started_at    BIGINT NOT NULL,
    finished_at   BIGINT,
    -- The last content that existed when the pass began.
    upto          TEXT COLLATE "C" NOT NULL,
    -- The last content whose copy was read, or is noted in scrub_retries.
    position      TEXT COLLATE "C" NOT NULL DEFAULT '',
    -- Number of contents up to the end of the pass, and up to the position.
    total         BIGINT NOT NULL,
    done          BIGINT NOT NULL DEFAULT 0,
    -- Every copy was read or written since.
    read_since    BIGINT NOT NULL
);

-- Copies that a pass could not read, or that take longer than one run.
CREATE TABLE scrub_retries (
    backend_name  TEXT COLLATE "C" NOT NULL,
    content_id    TEXT COLLATE "C" NOT NULL,
    due           BIGINT NOT NULL,
    attempts      BIGINT NOT NULL DEFAULT 0,
    last_error    TEXT COLLATE "C",
    -- The copy was read or written since.
    read_since    BIGINT NOT NULL,
    PRIMARY KEY (backend_name, content_id)
);
CREATE INDEX scrub_retries_due ON scrub_retries (backend_name, due);
