-- What the workers did. A run's identifier sorts by its start.
CREATE TABLE worker_runs (
    run_id       TEXT PRIMARY KEY,
    worker       TEXT NOT NULL,
    instance     TEXT NOT NULL,
    started_at   INTEGER NOT NULL,
    finished_at  INTEGER NOT NULL,
    outcome      TEXT NOT NULL CHECK (outcome IN ('ok', 'error', 'skipped', 'panicked')),
    items        TEXT NOT NULL,
    error        TEXT
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX worker_runs_worker ON worker_runs (worker, run_id);
CREATE INDEX worker_runs_age ON worker_runs (finished_at);

-- One row per worker: whether it is paused, and when it ran, also when there was nothing to do.
CREATE TABLE worker_state (
    worker           TEXT PRIMARY KEY,
    paused           INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    seen_at          INTEGER NOT NULL,
    last_started_at  INTEGER,
    last_success_at  INTEGER
) STRICT, WITHOUT ROWID;
