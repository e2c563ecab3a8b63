-- Number of copies that each content shall have. A bucket has the configured factor; the cluster row has the factor of
-- buckets that are created later. The factor of a content is the highest one of the buckets that refer to it.
ALTER TABLE cluster ADD COLUMN factor BIGINT NOT NULL DEFAULT 1;
ALTER TABLE buckets ADD COLUMN factor BIGINT NOT NULL DEFAULT 1;
ALTER TABLE contents ADD COLUMN factor BIGINT NOT NULL DEFAULT 1;

-- State of a backend; a time is NULL while the state does not apply. Copies that were verified before trust_from do not
-- count: an operator has since accepted another store under this name.
ALTER TABLE backends ADD COLUMN draining_since BIGINT;
ALTER TABLE backends ADD COLUMN unhealthy_since BIGINT;
ALTER TABLE backends ADD COLUMN trust_from BIGINT;
ALTER TABLE backends ADD COLUMN removing_since BIGINT;
ALTER TABLE backends ADD COLUMN removed_at BIGINT;

-- Announces a change of a backend's row, until that time. Writers read it without a lock and then leave the backend
-- alone; otherwise the change would wait behind their locks for as long as they keep coming.
CREATE TABLE backend_changes (
    backend_name  TEXT COLLATE "C" PRIMARY KEY,
    until         BIGINT NOT NULL
);

-- Contents whose number of copies may differ from their factor.
CREATE TABLE copy_work (
    content_id  TEXT COLLATE "C" PRIMARY KEY,
    -- Number of copies that counted when the row was written: those with the fewest come first.
    copies      BIGINT NOT NULL,
    -- 1: more copies than the factor, 0: fewer.
    excess      BIGINT NOT NULL,
    due         BIGINT NOT NULL,
    attempts    BIGINT NOT NULL DEFAULT 0,
    last_error  TEXT COLLATE "C",
    created_at  BIGINT NOT NULL
);
CREATE INDEX copy_work_next ON copy_work (excess, copies, created_at);

-- Position of the walk over all contents that follows a change of a factor or of a backend's state; no row: no walk.
CREATE TABLE copy_review (
    only_row  BIGINT PRIMARY KEY CHECK (only_row = 1),
    position  TEXT COLLATE "C" NOT NULL
);

-- An intent of kind 'copy' names the content of which it writes another copy, and why.
ALTER TABLE pending_objects ADD COLUMN copy_content_id TEXT COLLATE "C";
ALTER TABLE pending_objects ADD COLUMN copy_reason TEXT COLLATE "C";
CREATE UNIQUE INDEX pending_objects_copy ON pending_objects (copy_content_id, backend_name)
    WHERE copy_content_id IS NOT NULL;
