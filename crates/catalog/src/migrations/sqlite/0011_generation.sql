-- How often this catalog was opened. A file beside the database holds the same number: where that is further ahead, this
-- is an older database than the one that was served last.
CREATE TABLE generation (
    only_row    INTEGER PRIMARY KEY CHECK (only_row = 1),
    generation  INTEGER NOT NULL
) STRICT;
INSERT INTO generation (only_row, generation) VALUES (1, 0);

-- Moments from which on an absence proves something, to find those that a clock wrote which was ahead.
CREATE INDEX cleanup_queue_absent ON cleanup_queue (absent_ok_after) WHERE absent_ok_after IS NOT NULL;
CREATE INDEX cleanup_dlq_absent ON cleanup_dlq (absent_ok_after) WHERE absent_ok_after IS NOT NULL;
