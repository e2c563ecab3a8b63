-- Passes of reconcile over one backend each. A pass compares the listing of the backend with the rows that name its
-- bytes, page by page.
CREATE TABLE reconcile_passes (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    backend_name  TEXT COLLATE "C" NOT NULL,
    -- open: the backend is listed; folding: the pass is valid and its findings replace those of the pass before;
    -- acting: what was confirmed is acted on.
    state         TEXT COLLATE "C" NOT NULL
        CHECK (state IN ('open', 'folding', 'acting', 'done', 'invalid', 'cancelled', 'discarded')),
    -- Position of the walk, or ID of the last finding that was acted on. A unit that advances it names the old one.
    position      TEXT COLLATE "C" NOT NULL,
    counts        TEXT COLLATE "C" NOT NULL,
    -- Before the first listing, by the catalog's clock.
    cut_off       BIGINT NOT NULL,
    -- Why an operator must approve what the pass found; NULL if the findings are plausible.
    held_reason   TEXT COLLATE "C",
    -- The instance that stored the last page.
    instance      TEXT COLLATE "C" NOT NULL,
    -- Number of failed attempts since the last page.
    failures      BIGINT NOT NULL DEFAULT 0,
    -- Why the pass ended, if it is not valid.
    reason        TEXT COLLATE "C",
    updated_at    BIGINT NOT NULL,
    ended_at      BIGINT
);
CREATE INDEX reconcile_passes_backend ON reconcile_passes (backend_name, id);
CREATE UNIQUE INDEX reconcile_passes_open ON reconcile_passes (backend_name) WHERE state IN ('open', 'folding');

-- Findings of open passes. They count only if their pass turns out to be valid.
CREATE TABLE reconcile_findings (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pass_id       BIGINT NOT NULL,
    kind          TEXT COLLATE "C" NOT NULL,
    backend_name  TEXT COLLATE "C" NOT NULL,
    physical_key  TEXT COLLATE "C" NOT NULL,
    target        TEXT COLLATE "C" NOT NULL,
    size_bytes    BIGINT NOT NULL CHECK (size_bytes >= 0),
    fingerprint   TEXT COLLATE "C" NOT NULL,
    born_at       BIGINT,
    detail        TEXT COLLATE "C" NOT NULL,
    UNIQUE (pass_id, kind, physical_key, target)
);
CREATE INDEX reconcile_findings_pass ON reconcile_findings (pass_id, id);

-- Foreign keys by their first folder.
CREATE TABLE reconcile_folders (
    pass_id  BIGINT NOT NULL,
    folder   TEXT COLLATE "C" NOT NULL,
    keys     BIGINT NOT NULL,
    bytes    BIGINT NOT NULL,
    PRIMARY KEY (pass_id, folder)
);

-- The last valid pass that saw a finding, and what is known of it; NULL for findings that no pass reports.
ALTER TABLE findings ADD COLUMN pass_id BIGINT;
-- Differs for bytes that were written again.
ALTER TABLE findings ADD COLUMN fingerprint TEXT COLLATE "C" NOT NULL DEFAULT '';
-- Cut-offs of the first and the last pass that saw it as it is, and the number of these passes.
ALTER TABLE findings ADD COLUMN first_seen_at BIGINT;
ALTER TABLE findings ADD COLUMN seen_at BIGINT;
ALTER TABLE findings ADD COLUMN passes BIGINT NOT NULL DEFAULT 0;
-- Time in the identifier of the key; NULL if it has none.
ALTER TABLE findings ADD COLUMN born_at BIGINT;
ALTER TABLE findings ADD COLUMN dismissed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE findings ADD COLUMN approved BIGINT NOT NULL DEFAULT 0;
CREATE INDEX findings_pass ON findings (backend_name, pass_id, id) WHERE pass_id IS NOT NULL;

-- Findings of passes up to this ID are approved.
ALTER TABLE backends ADD COLUMN approved_finding BIGINT NOT NULL DEFAULT 0;

-- Largest time in an identifier of the keys that were queued although no row named them, in milliseconds. A commit that
-- names an older existing key cannot know that its bytes are still there.
ALTER TABLE backend_key_locks ADD COLUMN queued_upto BIGINT NOT NULL DEFAULT -1;
