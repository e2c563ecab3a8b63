-- A cleanup, a dead letter or a finding names one target under its key: '' (the object), 'version:ID', 'upload:ID',
-- 'upload' (every unfinished upload: the ID is lost) or 'draft' (a temporary file, whose path is the key).
-- expected: the bytes that other programs may have replaced, as JSON; they are compared before every attempt.

-- Until now, a row with an upload aborted it and deleted the object. It becomes two rows. The one of the object keeps the
-- number and the bytes. The one of the upload keeps the number under which it was first queued.
ALTER TABLE cleanup_queue ADD COLUMN target TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE cleanup_queue ADD COLUMN expected TEXT COLLATE "C";
UPDATE cleanup_queue SET target = 'version:' || backend_version WHERE backend_version IS NOT NULL;
ALTER TABLE cleanup_queue DROP CONSTRAINT cleanup_queue_backend_name_physical_key_key;
ALTER TABLE cleanup_queue ADD UNIQUE (backend_name, physical_key, target);
INSERT INTO cleanup_queue (original_id, backend_name, physical_key, target, size_bytes, stripe, reason, attempts,
    last_error, due, absent_ok_after, claimed_by, claimed_at, token, created_at)
    SELECT coalesce(original_id, id), backend_name, physical_key,
    CASE backend_upload WHEN '?' THEN 'upload' ELSE 'upload:' || substr(backend_upload, 4) END,
    0, stripe, reason, attempts, last_error, due, absent_ok_after, claimed_by, claimed_at, token, created_at
    FROM cleanup_queue WHERE backend_upload IS NOT NULL ORDER BY id;
ALTER TABLE cleanup_queue DROP COLUMN backend_version, DROP COLUMN backend_upload;

ALTER TABLE cleanup_dlq ADD COLUMN target TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE cleanup_dlq ADD COLUMN expected TEXT COLLATE "C";
UPDATE cleanup_dlq SET target = 'version:' || backend_version WHERE backend_version IS NOT NULL;
ALTER TABLE cleanup_dlq DROP CONSTRAINT cleanup_dlq_backend_name_physical_key_key;
ALTER TABLE cleanup_dlq ADD UNIQUE (backend_name, physical_key, target);
INSERT INTO cleanup_dlq (original_id, backend_name, physical_key, target, size_bytes, stripe, reason, attempts,
    last_error, absent_ok_after, created_at, dead_since, token)
    SELECT original_id, backend_name, physical_key,
    CASE backend_upload WHEN '?' THEN 'upload' ELSE 'upload:' || substr(backend_upload, 4) END,
    0, stripe, reason, attempts, last_error, absent_ok_after, created_at, dead_since, token
    FROM cleanup_dlq WHERE backend_upload IS NOT NULL ORDER BY id;
ALTER TABLE cleanup_dlq DROP COLUMN backend_version, DROP COLUMN backend_upload;

ALTER TABLE findings ADD COLUMN target TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE findings DROP CONSTRAINT findings_backend_name_physical_key_kind_key;
ALTER TABLE findings ADD UNIQUE (backend_name, physical_key, target, kind);

-- Cleanups of keys that no other row named: a backend has a limited number of them at a time.
CREATE INDEX cleanup_queue_unnamed ON cleanup_queue (backend_name) WHERE reason IN ('reconcile', 'sweep');

-- One row for each backend. A unit that queues keys which no row names locks it; a unit that names a key whose bytes
-- exist already shares it. Intents need neither: their keys are new.
CREATE TABLE backend_key_locks (
    backend_name  TEXT COLLATE "C" PRIMARY KEY
);
INSERT INTO backend_key_locks (backend_name) SELECT name FROM backends;
