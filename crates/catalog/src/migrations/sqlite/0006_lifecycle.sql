-- A bucket's lifecycle rules as JSON. The revision changes with every change of them and never comes back, so whoever
-- works by rules can tell whether they are still in force.
ALTER TABLE buckets ADD COLUMN lifecycle TEXT;
ALTER TABLE buckets ADD COLUMN lifecycle_revision INTEGER NOT NULL DEFAULT 0;
