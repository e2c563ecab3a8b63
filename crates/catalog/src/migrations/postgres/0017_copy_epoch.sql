-- Grows when a backend becomes usable or its state changes: work that was postponed before is due again, however many
-- rows there are.
CREATE TABLE copy_epoch (
    only_row  BIGINT PRIMARY KEY CHECK (only_row = 1),
    epoch     BIGINT NOT NULL
);
INSERT INTO copy_epoch (only_row, epoch) VALUES (1, 0);
ALTER TABLE copy_work ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;

-- The instance that postponed the work because it reaches no copy, or no backend that could take another one. The work
-- is due for all other instances.
ALTER TABLE copy_work ADD COLUMN unreachable_by TEXT COLLATE "C";

-- 0: the walk that notes only contents with their last copy, 1: the one that notes all others.
ALTER TABLE copy_review ADD COLUMN pass BIGINT NOT NULL DEFAULT 1;

-- Until when an instance may write the mark that it planned. A removal waits for it.
ALTER TABLE backends ADD COLUMN mark_planned_until BIGINT;
