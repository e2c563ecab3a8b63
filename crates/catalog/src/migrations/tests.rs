//! Rows that the version before targets wrote, and what becomes of them, for the migration tests of both drivers.

/// Number of the last step before targets.
pub const BEFORE_TARGETS: usize = 15;

/// A queue with every combination of version and upload, a dead letter and a finding. The fifth number was used.
pub const WRITTEN_BEFORE: &str = "
    INSERT INTO backends (name) VALUES ('disk');
    INSERT INTO backend_quotas (backend_name, stripe, orphan_bytes) VALUES ('disk', 0, 31);
    INSERT INTO cleanup_queue (backend_name, physical_key, backend_version, backend_upload, size_bytes, stripe, reason,
        due, absent_ok_after, created_at) VALUES
        ('disk', 'plain~1', NULL, NULL, 1, 0, 'delete', 7, NULL, 3),
        ('disk', 'version~2', 'v1', NULL, 2, 0, 'delete', 7, NULL, 3),
        ('disk', 'upload~3', NULL, 'id:u:1', 4, 0, 'put_orphan', 7, 9, 3),
        ('disk', 'starting~4', 'v2', '?', 8, 0, 'put_orphan', 7, 9, 3),
        ('disk', 'settled~5', NULL, NULL, 1, 0, 'delete', 7, NULL, 3);
    DELETE FROM cleanup_queue WHERE physical_key = 'settled~5';
    INSERT INTO cleanup_dlq (original_id, backend_name, physical_key, backend_upload, size_bytes, stripe, reason,
        attempts, last_error, created_at, dead_since)
        VALUES (77, 'disk', 'dead~6', 'id:u2', 16, 0, 'put_orphan', 10, 'refused', 3, 4);
    INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at)
        VALUES ('written_off', 'disk', 'gone~7', 5, '{}', 1);";

/// The rows as text, one per target.
pub const SHOWN: &str = "SELECT 'queue ' || id || ' ' || coalesce(original_id, 0) || ' ' || physical_key || ' [' || \
     target || '] ' || size_bytes || ' ' || due || ' ' || coalesce(absent_ok_after, 0) AS shown FROM cleanup_queue \
     UNION ALL SELECT 'dead ' || id || ' ' || original_id || ' ' || physical_key || ' [' || target || '] ' || \
     size_bytes || ' ' || attempts || ' ' || last_error FROM cleanup_dlq \
     UNION ALL SELECT 'finding ' || id || ' ' || kind || ' ' || physical_key || ' [' || target || '] ' || size_bytes \
     FROM findings ORDER BY 1";

/// Bytes are counted once, with the object. An upload keeps the number under which it was first queued.
pub const MIGRATED: [&str; 9] = [
    "dead 1 77 dead~6 [] 16 10 refused",
    "dead 2 77 dead~6 [upload:u2] 0 10 refused",
    "finding 1 written_off gone~7 [] 5",
    "queue 1 0 plain~1 [] 1 7 0",
    "queue 2 0 version~2 [version:v1] 2 7 0",
    "queue 3 0 upload~3 [] 4 7 9",
    "queue 4 0 starting~4 [version:v2] 8 7 9",
    "queue 6 3 upload~3 [upload:u:1] 0 7 9",
    "queue 7 4 starting~4 [upload] 0 7 9",
];
