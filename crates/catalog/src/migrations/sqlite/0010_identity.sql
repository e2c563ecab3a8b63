-- The sequence numbers of the marks; 0: written before marks had one.
ALTER TABLE backends ADD COLUMN mark_sequence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE backends ADD COLUMN next_sequence INTEGER NOT NULL DEFAULT 0;
UPDATE backends SET next_sequence = 1 WHERE next_mark IS NOT NULL;

-- When the current mark was confirmed, and when an operator last accepted the backend as it was found. Locations
-- up to this content are not expected to be present since then.
ALTER TABLE backends ADD COLUMN marked_at INTEGER;
ALTER TABLE backends ADD COLUMN accepted_at INTEGER;
ALTER TABLE backends ADD COLUMN accepted_content TEXT;

-- Whether an identity fits is decided by each instance for itself.
UPDATE backends SET frozen_reason = NULL;

-- What each host last found at a backend, while any host finds something that does not fit. A row with a reason
-- stops all deletes on its backend until its lease ends, unless what it found was dismissed.
CREATE TABLE identity_records (
    backend_name    TEXT NOT NULL,
    host            TEXT NOT NULL,
    found           TEXT NOT NULL,
    hash            TEXT NOT NULL,
    reason          TEXT,
    dismissed_hash  TEXT,
    lease_until     INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (backend_name, host)
) STRICT, WITHOUT ROWID;
