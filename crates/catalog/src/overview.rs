//! How long what is due has waited, and how much there is.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;

use crate::error::Error;
use crate::unit::Row;
use crate::uploads::StaleUploads as _;
use crate::{Catalog, params};

/// Of how many stale uploads the idlest is looked for.
const STALE_MAX: usize = 100;

/// For how long the oldest row of each queue has been due; zero where nothing is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OldestDue {
    /// Cleanups, claimed or not.
    pub cleanup: Duration,
    /// Intents whose lease ran out.
    pub pending_intents: Duration,
    /// Uploads that nobody works on.
    pub stale_multipart: Duration,
    /// Objects whose time has passed, claimed or not.
    pub expiry: Duration,
}

/// What a bucket holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketCount {
    /// Its name.
    pub bucket: String,
    /// How many objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of those lie nowhere, because other references of the bucket have them already.
    pub saved: u64,
}

/// Numbers for people and dashboards.
#[async_trait]
pub trait Overview: Send + Sync {
    /// How long what is due has waited; uploads are due when nothing happened for `stale_timeout`.
    async fn oldest_due(&self, stale_timeout: Duration) -> Result<OldestDue, Error>;

    /// What every bucket holds; what has expired does not count. It counts row by row, and looks once more at all that
    /// refers to shared content.
    async fn count_objects(&self) -> Result<Vec<BucketCount>, Error>;

    /// How many locations every backend has. It counts row by row.
    async fn count_locations(&self) -> Result<Vec<(BackendName, u64)>, Error>;
}

/// Every lane is asked for its first row; the few that are claimed are looked at one by one.
const OLDEST: &str = "SELECT :now, \
     (SELECT min(first) FROM (SELECT (SELECT min(due) FROM cleanup_queue \
       WHERE backend_name = backend_quotas.backend_name AND token IS NULL AND due <= :now) AS first \
       FROM backend_quotas WHERE stripe = 0) AS lanes), \
     (SELECT min(due) FROM cleanup_queue WHERE token IS NOT NULL AND claimed_at <= :now AND due <= :now), \
     (SELECT min(lease_until) FROM pending_objects WHERE lease_until <= :now), \
     (SELECT min(expires_at) FROM objects WHERE expires_at <= :now AND deletion_status = 'NOT_EXPIRED'), \
     (SELECT min(expires_at) FROM objects WHERE deletion_status = 'DELETION_IN_PROGRESS' \
       AND deletion_initiated_at <= :now AND expires_at <= :now)";

fn waited(row: &Row, column: usize) -> Result<Duration, Error> {
    let now = Timestamp::from_millis(row.int(0)?);
    Ok(row.opt_int(column)?.map_or(Duration::ZERO, |due| now.since(Timestamp::from_millis(due))))
}

/// What every bucket's objects refer to more than once, by whole contents: each object counts for its content, and each
/// piece of joined content for its own, once for all objects that share it. Contents that one row refers to are left
/// out at once, so this costs one pass over the contents and a search for each reference to shared ones.
const SHARED: &str = "WITH referred AS (\
     SELECT o.bucket_id AS bucket, c.id AS content, c.size_bytes AS size, sum(o.size_bytes) AS bytes \
       FROM contents c JOIN objects o ON o.content_id = c.id WHERE c.ref_count > 1 AND c.state = 'live' \
       GROUP BY o.bucket_id, c.id, c.size_bytes \
     UNION ALL \
     SELECT bucket, content, size, length FROM (SELECT DISTINCT o.bucket_id AS bucket, c.id AS content, \
       c.size_bytes AS size, p.joined_id, p.number, p.length FROM contents c JOIN content_parts p ON p.whole_id = c.id \
       JOIN objects o ON o.content_id = p.joined_id WHERE c.ref_count > 1 AND c.state = 'live') AS pieces) \
     SELECT bucket, CAST(sum(bytes - size) AS BIGINT) FROM (SELECT bucket, content, size, sum(bytes) AS bytes \
       FROM referred GROUP BY bucket, content, size) AS summed WHERE bytes > size GROUP BY bucket";

#[async_trait]
impl Overview for Catalog {
    async fn oldest_due(&self, stale_timeout: Duration) -> Result<OldestDue, Error> {
        let stale = self.stale_uploads(stale_timeout, STALE_MAX).await?;
        let idlest = stale.iter().map(|upload| upload.idle).max().unwrap_or_default();
        let rows = self.survey(OLDEST, vec![]).await?;
        Ok(OldestDue {
            cleanup: waited(&rows[0], 1)?.max(waited(&rows[0], 2)?),
            pending_intents: waited(&rows[0], 3)?,
            stale_multipart: idlest.saturating_sub(stale_timeout),
            expiry: waited(&rows[0], 4)?.max(waited(&rows[0], 5)?),
        })
    }

    async fn count_objects(&self) -> Result<Vec<BucketCount>, Error> {
        const SQL: &str = "SELECT b.id, b.name, coalesce(s.n, 0), coalesce(s.bytes, 0) FROM buckets b LEFT JOIN \
             (SELECT bucket_id, count(*) AS n, CAST(sum(size_bytes) AS BIGINT) AS bytes FROM objects \
              WHERE expires_at IS NULL OR expires_at > :now GROUP BY bucket_id) s ON s.bucket_id = b.id ORDER BY b.name";
        let saved = self.scan(SHARED, params![]).await?;
        let saved = saved.iter().map(|row| Ok((row.int(0)?, row.size(1)?)));
        let saved = saved.collect::<Result<HashMap<_, _>, Error>>()?;
        let count = |row: &Row| {
            let (objects, bytes) = (row.size(2)?, row.size(3)?);
            let saved = saved.get(&row.int(0)?).copied().unwrap_or(0);
            Ok(BucketCount { bucket: row.text(1)?.to_owned(), objects, bytes, saved })
        };
        self.scan(SQL, params![]).await?.iter().map(count).collect()
    }

    async fn count_locations(&self) -> Result<Vec<(BackendName, u64)>, Error> {
        const SQL: &str = "SELECT q.backend_name, (SELECT count(*) FROM object_locations l \
             WHERE l.backend_name = q.backend_name) FROM backend_quotas q WHERE q.stripe = 0 ORDER BY q.backend_name";
        self.scan(SQL, params![]).await?.iter().map(|row| Ok((row.parse(0)?, row.size(1)?))).collect()
    }
}
