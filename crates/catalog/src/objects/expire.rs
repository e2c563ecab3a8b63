//! Objects whose time has passed: claimed in batches, removed with all that hung on them.
//!
//! A claim only says who is at work. Whoever removes the rows names them by the token of the claim: what was written
//! anew meanwhile, or taken from whoever was too slow, does not carry it any more. Reads never look at claims.

use async_trait::async_trait;
use s3o_model::cleanup::Reason;
use s3o_model::clock::Timestamp;
use s3o_model::ids::{BucketId, ClaimToken};

use super::delete::{MISLED_BY_EXPIRY, remove_marked};
use super::moment;
use crate::error::{Error, Verdict};
use crate::low_water::Queue;
use crate::unit::{Row, Unit};
use crate::{Catalog, params};

/// An object that expired and is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredObject {
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// Its length.
    pub size_bytes: u64,
}

/// What is known of objects whose time has passed.
#[async_trait]
pub trait Expiries: Send + Sync {
    /// Claims up to `limit` expired objects that are nobody's; says how many. Where nothing has
    /// expired, that is one read.
    async fn claim_expiries(&self, token: ClaimToken, limit: usize) -> Result<usize, Error>;

    /// Removes the claimed objects that still carry the token and releases their content, all in
    /// one unit; those that went are returned.
    async fn remove_claimed(&self, token: ClaimToken) -> Result<Vec<ExpiredObject>, Error>;

    /// Gives half of what a claim holds to another token; says how many. None: it holds one.
    async fn halve_claim(&self, token: ClaimToken, other: ClaimToken) -> Result<usize, Error>;

    /// Leaves a finding about what a claim holds: it could not be removed, and will not be tried
    /// again before somebody resets it.
    async fn note_unremovable(&self, token: ClaimToken, why: &str) -> Result<(), Error>;

    /// Whether a bucket holds objects that have not expired.
    async fn has_live_objects(&self, bucket: BucketId) -> Result<bool, Error>;

    /// Removes up to `limit` expired objects of a bucket, whoever has claimed them; says which.
    async fn remove_expired_in(
        &self,
        bucket: BucketId,
        limit: usize,
        token: ClaimToken,
    ) -> Result<Vec<ExpiredObject>, Error>;
}

/// The present moment, and the earliest expiry from `$1` on that has passed.
const PASSED: &str = "SELECT :now, (SELECT expires_at FROM objects WHERE expires_at >= $1 \
     AND expires_at <= :now AND deletion_status = 'NOT_EXPIRED' ORDER BY expires_at LIMIT 1)";

/// Chosen once: a list of rows to lock that is part of the search may be asked for again, and then gives others.
const CLAIM: &str = "WITH chosen AS MATERIALIZED (SELECT bucket_id, key FROM objects \
     WHERE expires_at >= $1 AND expires_at <= :now AND deletion_status = 'NOT_EXPIRED' \
     ORDER BY expires_at LIMIT $2 /*skip*/) \
     UPDATE objects SET deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now, token = $3 \
     WHERE (bucket_id, key) IN (SELECT bucket_id, key FROM chosen)";

/// Locks what still carries the token, before anything that hangs on it.
const LOCK_CLAIMED: &str = "SELECT (SELECT name FROM buckets WHERE id = bucket_id), key, size_bytes FROM objects \
     WHERE token = $1 ORDER BY bucket_id, key /*lock*/";

/// Claimed rows that had not expired when they were claimed, by their primary key: a damaged index led the claim to them. The
/// moment of the claim counts, because a clock that was set back since then is no damage.
pub(crate) const CLAIMED_UNEXPIRED: &str = "SELECT i.key FROM objects i \
     LEFT JOIN objects o ON o.bucket_id = i.bucket_id AND o.key = i.key \
     WHERE i.token = $1 AND (o.key IS NULL OR o.expires_at IS NULL \
     OR o.expires_at > coalesce(o.deletion_initiated_at, :now)) LIMIT 1";

const HALVE: &str = "UPDATE objects SET token = $2 WHERE (bucket_id, key) IN (SELECT bucket_id, key FROM objects \
     WHERE token = $1 ORDER BY bucket_id, key LIMIT (SELECT count(*) / 2 FROM objects WHERE token = $1))";

/// A finding of an object, not of bytes: it names no backend.
const NOTE: &str = "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
     SELECT 'not_expired', '', (SELECT name FROM buckets WHERE id = bucket_id) || '/' || key, size_bytes, $2, :now \
     FROM objects WHERE token = $1 \
     ON CONFLICT (backend_name, physical_key, kind) DO UPDATE SET detail = excluded.detail";

pub(crate) const LIVE: &str =
    "SELECT 1 FROM objects WHERE bucket_id = $1 AND (expires_at IS NULL OR expires_at > :now) LIMIT 1";

pub(crate) const MARK_EXPIRED_IN: &str = "WITH chosen AS MATERIALIZED (SELECT key FROM objects \
     WHERE bucket_id = $1 AND expires_at <= :now ORDER BY key LIMIT $2 /*lock*/) \
     UPDATE objects SET token = $3 WHERE bucket_id = $1 AND key IN (SELECT key FROM chosen)";

fn expired_object(row: &Row) -> Result<ExpiredObject, Error> {
    Ok(ExpiredObject { bucket: row.text(0)?.to_owned(), key: row.text(1)?.to_owned(), size_bytes: row.size(2)? })
}

#[async_trait]
impl Expiries for Catalog {
    async fn claim_expiries(&self, token: ClaimToken, limit: usize) -> Result<usize, Error> {
        if self.first_passed().await?.is_none() {
            return Ok(0);
        }
        let mut unit = Unit::new("claim_expiries");
        unit.run(CLAIM, params![self.low_waters.from(Queue::Expiries), limit, token]);
        Ok(self.write(unit).await?[0].changed)
    }

    async fn remove_claimed(&self, token: ClaimToken) -> Result<Vec<ExpiredObject>, Error> {
        let mut unit = Unit::new("remove_claimed");
        let claimed = unit.run(LOCK_CLAIMED, params![token]);
        unit.exactly(0, CLAIMED_UNEXPIRED, params![token], Verdict::Damaged);
        remove_marked(&mut unit, token, Reason::Expiry);
        self.write(unit).await?[claimed].rows.iter().map(expired_object).collect()
    }

    async fn halve_claim(&self, token: ClaimToken, other: ClaimToken) -> Result<usize, Error> {
        let mut unit = Unit::new("halve_claim");
        unit.run(HALVE, params![token, other]);
        Ok(self.write(unit).await?[0].changed)
    }

    async fn note_unremovable(&self, token: ClaimToken, why: &str) -> Result<(), Error> {
        let mut unit = Unit::new("note_unremovable");
        unit.run(NOTE, params![token, why]);
        self.write(unit).await.map(drop)
    }

    async fn has_live_objects(&self, bucket: BucketId) -> Result<bool, Error> {
        Ok(!self.read(LIVE, params![bucket]).await?.is_empty())
    }

    async fn remove_expired_in(
        &self,
        bucket: BucketId,
        limit: usize,
        token: ClaimToken,
    ) -> Result<Vec<ExpiredObject>, Error> {
        let mut unit = Unit::new("remove_expired_in");
        unit.run(MARK_EXPIRED_IN, params![bucket, limit, token]);
        let marked = unit.run(LOCK_CLAIMED, params![token]);
        unit.exactly(0, MISLED_BY_EXPIRY, params![token], Verdict::Damaged);
        remove_marked(&mut unit, token, Reason::Expiry);
        self.write(unit).await?[marked].rows.iter().map(expired_object).collect()
    }
}

impl Catalog {
    /// The earliest expiry that has passed, if the look finds one. Everything that expired left its
    /// entry in that index, so looks begin where the last one ended.
    async fn first_passed(&self) -> Result<Option<Timestamp>, Error> {
        let look = self.low_waters.look(Queue::Expiries);
        let row = &self.read(PASSED, params![look.from]).await?[0];
        let now = moment(row, 0)?;
        let passed = row.opt_int(1)?.map(Timestamp::from_millis);
        self.low_waters.of(Queue::Expiries, |water| water.reached(look, now, passed.unwrap_or(now)));
        Ok(passed)
    }
}
