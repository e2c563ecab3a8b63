-- What the workers did. A run's identifier sorts by its start.
CREATE TABLE worker_runs (
    run_id       TEXT COLLATE "C" PRIMARY KEY,
    worker       TEXT COLLATE "C" NOT NULL,
    instance     TEXT COLLATE "C" NOT NULL,
    started_at   BIGINT NOT NULL,
    finished_at  BIGINT NOT NULL,
    outcome      TEXT COLLATE "C" NOT NULL CHECK (outcome IN ('ok', 'error', 'skipped', 'panicked')),
    items        TEXT COLLATE "C" NOT NULL,
    error        TEXT COLLATE "C"
);
CREATE UNIQUE INDEX worker_runs_worker ON worker_runs (worker, run_id);
CREATE INDEX worker_runs_age ON worker_runs (finished_at);

-- One row per worker: whether it is paused, and when it ran, also when there was nothing to do.
CREATE TABLE worker_state (
    worker           TEXT COLLATE "C" PRIMARY KEY,
    paused           BIGINT NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    seen_at          BIGINT NOT NULL,
    last_started_at  BIGINT,
    last_success_at  BIGINT
);
