-- SQLite counts here how often its file was opened. A PostgreSQL catalog is not a file that is copied by hand.

-- Moments from which on an absence proves something, to find those that a clock wrote which was ahead.
CREATE INDEX cleanup_queue_absent ON cleanup_queue (absent_ok_after) WHERE absent_ok_after IS NOT NULL;
CREATE INDEX cleanup_dlq_absent ON cleanup_dlq (absent_ok_after) WHERE absent_ok_after IS NOT NULL;
