//! Ages of due rows, and numbers of objects and locations.

use std::collections::HashMap;
use std::time::Duration;

use s3o_model::names::BackendName;

use crate::error::Error;
use crate::unit::Row;
use crate::{Catalog, params};

/// Number of stale uploads among which the longest inactive one is searched.
const STALE_MAX: usize = 100;

/// How long the oldest row of each queue has been due; zero if none is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OldestDue {
    /// Cleanups, claimed or not.
    pub cleanup: Duration,
    /// Intents whose lease expired.
    pub pending_intents: Duration,
    /// Open uploads without recent activity.
    pub stale_multipart: Duration,
    /// Expired objects, claimed or not.
    pub expiry: Duration,
}

/// Number and size of a bucket's objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketCount {
    /// Name of the bucket.
    pub bucket: String,
    /// Number of objects that have not expired.
    pub objects: u64,
    /// Sum of their lengths.
    pub bytes: u64,
    /// Number of objects in trash.
    pub trash_objects: u64,
    /// Sum of their lengths.
    pub trash_bytes: u64,
    /// Bytes that are not stored again, because other references of the bucket share their content.
    pub saved: u64,
}

/// Reads the first unclaimed row of each backend, and the few claimed rows one by one.
const OLDEST: &str = "SELECT :now AS now, \
     (SELECT min(first) FROM (SELECT (SELECT min(due) FROM cleanup_queue \
       WHERE backend_name = backend_quotas.backend_name AND token IS NULL AND due <= :now) AS first \
       FROM backend_quotas WHERE stripe = 0) AS lanes) AS waiting_cleanup, \
     (SELECT min(due) FROM cleanup_queue WHERE token IS NOT NULL AND claimed_at <= :now AND due <= :now) \
       AS claimed_cleanup, (SELECT min(lease_until) FROM pending_objects WHERE lease_until <= :now) AS lease, \
     (SELECT min(expires_at) FROM objects WHERE expires_at <= :now AND deletion_status = 'NOT_EXPIRED') \
       AS waiting_expiry, (SELECT min(expires_at) FROM objects WHERE deletion_status = 'DELETION_IN_PROGRESS' \
       AND deletion_initiated_at <= :now AND expires_at <= :now) AS claimed_expiry";

fn waited(row: &Row, column: &str) -> Result<Duration, Error> {
    let now = row.time("now")?;
    Ok(row.opt_time(column)?.map_or(Duration::ZERO, |due| now.since(due)))
}

/// Bytes of each bucket that its objects share. Each object counts for its content; each piece of joined content counts
/// once for all objects that share the joined content. Contents with one reference are skipped, so this costs one pass
/// over the contents and a search for each reference to a shared one.
const SHARED: &str = "WITH referred AS (\
     SELECT o.bucket_id AS bucket, c.id AS content, c.size_bytes AS size, sum(o.size_bytes) AS bytes \
       FROM contents c JOIN objects o ON o.content_id = c.id WHERE c.ref_count > 1 AND c.state = 'live' \
       GROUP BY o.bucket_id, c.id, c.size_bytes \
     UNION ALL \
     SELECT bucket, content, size, length FROM (SELECT DISTINCT o.bucket_id AS bucket, c.id AS content, \
       c.size_bytes AS size, p.joined_id, p.number, p.length FROM contents c JOIN content_parts p ON p.whole_id = c.id \
       JOIN objects o ON o.content_id = p.joined_id WHERE c.ref_count > 1 AND c.state = 'live') AS pieces) \
     SELECT bucket, CAST(sum(bytes - size) AS BIGINT) AS saved FROM (SELECT bucket, content, size, sum(bytes) AS bytes \
       FROM referred GROUP BY bucket, content, size) AS summed WHERE bytes > size GROUP BY bucket";

impl Catalog {
    /// Ages of the oldest due rows; uploads are due when they were inactive for `stale_timeout`.
    pub async fn oldest_due(&self, stale_timeout: Duration) -> Result<OldestDue, Error> {
        let stale = self.stale_uploads(stale_timeout, STALE_MAX).await?;
        let idlest = stale.iter().map(|upload| upload.idle).max().unwrap_or_default();
        let row = &self.survey(OLDEST, vec![]).await?[0];
        Ok(OldestDue {
            cleanup: waited(row, "waiting_cleanup")?.max(waited(row, "claimed_cleanup")?),
            pending_intents: waited(row, "lease")?,
            stale_multipart: idlest.saturating_sub(stale_timeout),
            expiry: waited(row, "waiting_expiry")?.max(waited(row, "claimed_expiry")?),
        })
    }

    /// Counts the objects of every bucket. Reads all objects, and all references to shared content a second time.
    pub async fn count_objects(&self) -> Result<Vec<BucketCount>, Error> {
        const SQL: &str = "SELECT b.id, b.name, coalesce(s.n, 0) AS objects, coalesce(s.bytes, 0) AS bytes, \
             coalesce(t.n, 0) AS trash_objects, coalesce(t.bytes, 0) AS trash_bytes FROM buckets b LEFT JOIN \
             (SELECT bucket_id, count(*) AS n, CAST(sum(size_bytes) AS BIGINT) AS bytes FROM trash_objects \
              GROUP BY bucket_id) t ON t.bucket_id = b.id LEFT JOIN \
             (SELECT bucket_id, count(*) AS n, CAST(sum(size_bytes) AS BIGINT) AS bytes FROM objects \
              WHERE expires_at IS NULL OR expires_at > :now GROUP BY bucket_id) s ON s.bucket_id = b.id ORDER BY \
              b.name";
        let saved = self.scan(SHARED, params![]).await?;
        let saved = saved.iter().map(|row| Ok((row.int("bucket")?, row.size("saved")?)));
        let saved = saved.collect::<Result<HashMap<_, _>, Error>>()?;
        let count = |row: &Row| {
            let (objects, bytes) = (row.size("objects")?, row.size("bytes")?);
            let saved = saved.get(&row.int("id")?).copied().unwrap_or(0);
            let (trash_objects, trash_bytes) = (row.size("trash_objects")?, row.size("trash_bytes")?);
            Ok(BucketCount { bucket: row.string("name")?, objects, bytes, trash_objects, trash_bytes, saved })
        };
        self.scan(SQL, params![]).await?.iter().map(count).collect()
    }

    /// Number of locations of every backend. Reads all locations.
    pub async fn count_locations(&self) -> Result<Vec<(BackendName, u64)>, Error> {
        const SQL: &str = "SELECT q.backend_name, (SELECT count(*) FROM object_locations l \
             WHERE l.backend_name = q.backend_name) AS n FROM backend_quotas q WHERE q.stripe = 0 ORDER BY \
             q.backend_name";
        let rows = self.scan(SQL, params![]).await?;
        rows.iter().map(|row| Ok((row.parse("backend_name")?, row.size("n")?))).collect()
    }
}
