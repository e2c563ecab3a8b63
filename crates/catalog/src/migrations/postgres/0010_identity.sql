-- The sequence numbers of the marks; 0: written before marks had one.
ALTER TABLE backends ADD COLUMN mark_sequence BIGINT NOT NULL DEFAULT 0;
ALTER TABLE backends ADD COLUMN next_sequence BIGINT NOT NULL DEFAULT 0;
UPDATE backends SET next_sequence = 1 WHERE next_mark IS NOT NULL;

-- When the current mark was confirmed, and when an operator last accepted the backend as it was found. Locations
-- up to this content are not expected to be present since then.
ALTER TABLE backends ADD COLUMN marked_at BIGINT;
ALTER TABLE backends ADD COLUMN accepted_at BIGINT;
ALTER TABLE backends ADD COLUMN accepted_content TEXT COLLATE "C";

-- Whether an identity fits is decided by each instance for itself.
UPDATE backends SET frozen_reason = NULL;

-- What each host last found at a backend, while any host finds something that does not fit. A row with a reason
-- stops all deletes on its backend until its lease ends, unless what it found was dismissed.
CREATE TABLE identity_records (
    backend_name    TEXT COLLATE "C" NOT NULL,
    host            TEXT COLLATE "C" NOT NULL,
    found           TEXT COLLATE "C" NOT NULL,
    hash            TEXT COLLATE "C" NOT NULL,
    reason          TEXT COLLATE "C",
    dismissed_hash  TEXT COLLATE "C",
    lease_until     BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    PRIMARY KEY (backend_name, host)
);
