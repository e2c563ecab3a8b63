-- Passes of reconcile over one backend each. A pass compares the listing of the backend with the rows that name its
-- bytes, page by page.
CREATE TABLE reconcile_passes (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    backend_name  TEXT NOT NULL,
    -- open: the backend is listed; folding: the pass is valid and its findings replace those of the pass before;
    -- acting: what was confirmed is acted on.
    state         TEXT NOT NULL
        CHECK (state IN ('open', 'folding', 'acting', 'done', 'invalid', 'cancelled', 'discarded')),
    -- Position of the walk, or ID of the last finding that was acted on. A unit that advances it names the old one.
    position      TEXT NOT NULL,
    counts        TEXT NOT NULL,
    -- Before the first listing, by the catalog's clock.
    cut_off       INTEGER NOT NULL,
    -- Why an operator must approve what the pass found; NULL if the findings are plausible.
    held_reason   TEXT,
    -- The instance that stored the last page.
    instance      TEXT NOT NULL,
    -- Number of failed attempts since the last page.
    failures      INTEGER NOT NULL DEFAULT 0,
    -- Why the pass ended, if it is not valid.
    reason        TEXT,
    updated_at    INTEGER NOT NULL,
    ended_at      INTEGER
) STRICT;
CREATE INDEX reconcile_passes_backend ON reconcile_passes (backend_name, id);
CREATE UNIQUE INDEX reconcile_passes_open ON reconcile_passes (backend_name) WHERE state IN ('open', 'folding');

-- Findings of open passes. They count only if their pass turns out to be valid.
CREATE TABLE reconcile_findings (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    pass_id       INTEGER NOT NULL,
    kind          TEXT NOT NULL,
    backend_name  TEXT NOT NULL,
    physical_key  TEXT NOT NULL,
    target        TEXT NOT NULL,
    size_bytes    INTEGER NOT NULL CHECK (size_bytes >= 0),
    fingerprint   TEXT NOT NULL,
    born_at       INTEGER,
    detail        TEXT NOT NULL,
    UNIQUE (pass_id, kind, physical_key, target)
) STRICT;
CREATE INDEX reconcile_findings_pass ON reconcile_findings (pass_id, id);

-- Foreign keys by their first folder.
CREATE TABLE reconcile_folders (
    pass_id  INTEGER NOT NULL,
    folder   TEXT NOT NULL,
    keys     INTEGER NOT NULL,
    bytes    INTEGER NOT NULL,
    PRIMARY KEY (pass_id, folder)
) STRICT, WITHOUT ROWID;

-- The last valid pass that saw a finding, and what is known of it; NULL for findings that no pass reports.
ALTER TABLE findings ADD COLUMN pass_id INTEGER;
-- Differs for bytes that were written again.
ALTER TABLE findings ADD COLUMN fingerprint TEXT NOT NULL DEFAULT '';
-- Cut-offs of the first and the last pass that saw it as it is, and the number of these passes.
ALTER TABLE findings ADD COLUMN first_seen_at INTEGER;
ALTER TABLE findings ADD COLUMN seen_at INTEGER;
ALTER TABLE findings ADD COLUMN passes INTEGER NOT NULL DEFAULT 0;
-- Time in the identifier of the key; NULL if it has none.
ALTER TABLE findings ADD COLUMN born_at INTEGER;
ALTER TABLE findings ADD COLUMN dismissed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE findings ADD COLUMN approved INTEGER NOT NULL DEFAULT 0;
CREATE INDEX findings_pass ON findings (backend_name, pass_id, id) WHERE pass_id IS NOT NULL;

-- Findings of passes up to this ID are approved.
ALTER TABLE backends ADD COLUMN approved_finding INTEGER NOT NULL DEFAULT 0;

-- Largest time in an identifier of the keys that were queued although no row named them, in milliseconds. A commit that
-- names an older existing key cannot know that its bytes are still there.
ALTER TABLE backend_key_locks ADD COLUMN queued_upto INTEGER NOT NULL DEFAULT -1;
