-- When the last run of a worker ended: the interval of a locked worker counts from there.
ALTER TABLE worker_state ADD COLUMN last_finished_at INTEGER;
