//! Expired objects: claimed in batches, and deleted together with the references they hold.
//!
//! A claim only reserves rows for one worker. The worker deletes them by the token of the claim: a row that was
//! overwritten meanwhile, or whose claim was reset, no longer carries it. Reads ignore claims.

use s3o_model::cleanup::Reason;
use s3o_model::clock::Timestamp;
use s3o_model::ids::{BucketId, ClaimToken};

use super::delete::{ROWS_NOT_EXPIRED, delete_marked};
use crate::error::{Error, Verdict};
use crate::low_water::Queue;
use crate::unit::{LockRank, Row, Unit};
use crate::{Catalog, params};

/// An expired object that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredObject {
    /// Name of the bucket.
    pub bucket: String,
    /// For the audit line, as clients see it.
    pub key: String,
    /// Length of the object.
    pub size_bytes: u64,
}

/// The catalog's time, and the earliest expiration from `$1` on that has passed.
const PASSED: &str = "SELECT :now AS now, (SELECT expires_at FROM objects WHERE expires_at >= $1 \
     AND expires_at <= :now AND deletion_status = 'NOT_EXPIRED' ORDER BY expires_at LIMIT 1) AS passed";

/// `MATERIALIZED`: PostgreSQL may evaluate a sub-select with `SKIP LOCKED` twice, and gets other rows the second time.
const CLAIM: &str = "WITH chosen AS MATERIALIZED (SELECT bucket_id, key FROM objects \
     WHERE expires_at >= $1 AND expires_at <= :now AND deletion_status = 'NOT_EXPIRED' \
     ORDER BY expires_at LIMIT $2 /*skip*/) \
     UPDATE objects SET deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now, token = $3 \
     WHERE (bucket_id, key) IN (SELECT bucket_id, key FROM chosen)";

/// Locks the objects that carry the token, before their intents and contents.
const LOCK_CLAIMED: &str = "SELECT (SELECT name FROM buckets WHERE id = bucket_id) AS bucket, key, size_bytes FROM \
     objects WHERE token = $1 ORDER BY bucket_id, key /*lock*/";

/// Claimed rows that had not expired when they were claimed, read by primary key: a damaged index led the claim to
/// them. The time of the claim counts, because a clock that was set back since then is no damage.
pub(crate) const CLAIMED_UNEXPIRED: &str = "SELECT i.key FROM objects i \
     LEFT JOIN objects o ON o.bucket_id = i.bucket_id AND o.key = i.key \
     WHERE i.token = $1 AND (o.key IS NULL OR o.expires_at IS NULL \
     OR o.expires_at > coalesce(o.deletion_initiated_at, :now)) LIMIT 1";

const HALVE: &str = "UPDATE objects SET token = $2 WHERE (bucket_id, key) IN (SELECT bucket_id, key FROM objects \
     WHERE token = $1 ORDER BY bucket_id, key LIMIT (SELECT count(*) / 2 FROM objects WHERE token = $1))";

/// A finding about an object, not about bytes: its backend is empty.
const NOTE: &str = "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
     SELECT 'not_expired', '', (SELECT name FROM buckets WHERE id = bucket_id) || '/' || key, size_bytes, $2, :now \
     FROM objects WHERE token = $1 \
     ON CONFLICT (backend_name, physical_key, target, kind) DO UPDATE SET detail = excluded.detail";

pub(crate) const LIVE: &str =
    "SELECT 1 FROM objects WHERE bucket_id = $1 AND (expires_at IS NULL OR expires_at > :now) LIMIT 1";

pub(crate) const MARK_EXPIRED_IN: &str = "WITH chosen AS MATERIALIZED (SELECT key FROM objects \
     WHERE bucket_id = $1 AND expires_at <= :now ORDER BY key LIMIT $2 /*lock*/) \
     UPDATE objects SET token = $3 WHERE bucket_id = $1 AND key IN (SELECT key FROM chosen)";

fn expired_object(row: &Row) -> Result<ExpiredObject, Error> {
    let (bucket, key) = (row.string("bucket")?, row.string("key")?);
    Ok(ExpiredObject { bucket, key, size_bytes: row.size("size_bytes")? })
}

impl Catalog {
    /// Claims up to `limit` expired objects without a claim and returns their number. If there are none, it only reads.
    pub async fn claim_expiries(&self, token: ClaimToken, limit: usize) -> Result<usize, Error> {
        if self.first_passed().await?.is_none() {
            return Ok(0);
        }
        let mut unit = Unit::new("claim_expiries");
        unit.run(CLAIM, params![self.low_waters.from(Queue::Expiries), limit, token]);
        Ok(self.write(unit).await?[0].changed)
    }

    /// Deletes the claimed objects that still carry the token, releases their content, and returns them.
    pub async fn remove_claimed(&self, token: ClaimToken) -> Result<Vec<ExpiredObject>, Error> {
        let mut unit = Unit::new("remove_claimed");
        let claimed = unit.at(LockRank::Object).run(LOCK_CLAIMED, params![token]);
        unit.exactly(0, CLAIMED_UNEXPIRED, params![token], Verdict::Damaged);
        delete_marked(&mut unit, token, Reason::Expiry);
        self.write(unit).await?[claimed].rows.iter().map(expired_object).collect()
    }

    /// Moves half of a claim's rows to another token and returns their number; 0 if the claim has one row.
    pub async fn halve_claim(&self, token: ClaimToken, other: ClaimToken) -> Result<usize, Error> {
        let mut unit = Unit::new("halve_claim");
        unit.run(HALVE, params![token, other]);
        Ok(self.write(unit).await?[0].changed)
    }

    /// Inserts a finding about the rows of a claim: their deletion fails, and is not tried again before the claim is
    /// reset.
    pub async fn note_unremovable(&self, token: ClaimToken, why: &str) -> Result<(), Error> {
        let mut unit = Unit::new("note_unremovable");
        unit.run(NOTE, params![token, why]);
        self.write(unit).await.map(drop)
    }

    /// True if a bucket has objects that have not expired.
    pub async fn has_live_objects(&self, bucket: BucketId) -> Result<bool, Error> {
        Ok(!self.read(LIVE, params![bucket]).await?.is_empty())
    }

    /// Deletes up to `limit` expired objects of a bucket, also those that a worker has claimed, and returns them.
    pub async fn remove_expired_in(
        &self,
        bucket: BucketId,
        limit: usize,
        token: ClaimToken,
    ) -> Result<Vec<ExpiredObject>, Error> {
        let mut unit = Unit::new("remove_expired_in");
        unit.at(LockRank::Object).run(MARK_EXPIRED_IN, params![bucket, limit, token]);
        let marked = unit.at(LockRank::Object).run(LOCK_CLAIMED, params![token]);
        unit.exactly(0, ROWS_NOT_EXPIRED, params![token], Verdict::Damaged);
        delete_marked(&mut unit, token, Reason::Expiry);
        self.write(unit).await?[marked].rows.iter().map(expired_object).collect()
    }
}

impl Catalog {
    /// The earliest expiration that has passed. Deleted objects leave dead entries in that index, so each query begins
    /// at the low-water mark of the last one.
    async fn first_passed(&self) -> Result<Option<Timestamp>, Error> {
        let query = self.low_waters.begin(Queue::Expiries);
        let row = &self.read(PASSED, params![query.from]).await?[0];
        let (now, passed) = (row.time("now")?, row.opt_time("passed")?);
        self.low_waters.of(Queue::Expiries, |water| water.reached(query, now, passed.unwrap_or(now)));
        Ok(passed)
    }
}
