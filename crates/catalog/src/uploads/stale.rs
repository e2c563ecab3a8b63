//! Open uploads without recent activity.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::clock::millis_of;
use s3o_model::ids::UploadId;

use super::rows;
use crate::error::{Error, Verdict};
use crate::unit::{Answer, LockRank, Row, Unit, Value};
use crate::{Catalog, params};

/// Times are stored in whole seconds, like S3 shows them: a stored time may be this much too early.
const ROUNDED_MILLIS: i64 = 999;

/// An open upload without activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleUpload {
    /// Open when it was found.
    pub id: UploadId,
    /// Name of the bucket; empty if the bucket was deleted.
    pub bucket: String,
    /// Key of the object that it would create.
    pub key: String,
    /// Time since the last part, lease or the creation.
    pub idle: Duration,
}

// Sub-selects, not joins: each reads the few rows of one upload under any plan.
const NEWEST_PART: &str = "coalesce((SELECT max(last_modified) FROM multipart_parts WHERE upload_id = u.id), 0)";
const NEWEST_LEASE: &str = "coalesce((SELECT max(lease_until) FROM pending_objects q WHERE q.bucket_id = u.bucket_id \
     AND q.key = u.key AND q.upload_id = u.id AND q.state = 'open'), 0)";

/// True for uploads `u` that are open and had no activity in the last `$1` milliseconds.
static IS_STALE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "u.state = 'open' AND u.created_at <= :now - $1 AND {NEWEST_PART} <= :now - $1 AND {NEWEST_LEASE} <= :now - $1"
    )
});

static STALE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT u.id, (SELECT name FROM buckets WHERE id = u.bucket_id) AS bucket, u.key, :now AS now, u.created_at, \
         {NEWEST_PART} AS newest_part, {NEWEST_LEASE} AS newest_lease FROM multipart_uploads u WHERE {} \
         ORDER BY u.created_at, u.id LIMIT $2",
        *IS_STALE
    )
});

static ABORT: LazyLock<String> = LazyLock::new(|| {
    format!("UPDATE multipart_uploads AS u SET state = 'aborted', closed_at = :now WHERE u.id = $2 AND {}", *IS_STALE)
});

fn stale_upload(row: &Row) -> Result<StaleUpload, Error> {
    let active = row.time("created_at")?.max(row.time("newest_part")?).max(row.time("newest_lease")?);
    Ok(StaleUpload {
        id: row.parse("id")?,
        bucket: row.opt_string("bucket")?.unwrap_or_default(),
        key: row.string("key")?,
        idle: row.time("now")?.since(active),
    })
}

const HELD_BYTES: &str =
    "SELECT CAST(coalesce(sum(length), 0) AS BIGINT) AS bytes FROM multipart_parts WHERE upload_id = $1";

fn cutoff(timeout: Duration) -> i64 {
    millis_of(timeout).saturating_add(ROUNDED_MILLIS)
}

impl Catalog {
    /// Open uploads without activity for longer than `timeout`, the oldest first.
    pub async fn stale_uploads(&self, timeout: Duration, limit: usize) -> Result<Vec<StaleUpload>, Error> {
        self.survey(&STALE, params![cutoff(timeout), limit]).await?.iter().map(stale_upload).collect()
    }

    /// Aborts an upload if it is still open and without activity. Returns the bytes of its parts, or `None` if it was
    /// closed or active.
    pub async fn abort_stale_upload(&self, id: UploadId, timeout: Duration) -> Result<Option<u64>, Error> {
        let mut unit = Unit::new("abort_stale_upload");
        let held = close(&mut unit, id, &ABORT, params![cutoff(timeout), id]);
        held_bytes(self.write(unit).await, held)
    }
}

/// Adds the statements that close an open upload; `sql` is the UPDATE that closes it, with the caller's conditions. The
/// answer at the returned index has the bytes of its parts, for [`held_bytes`].
pub(crate) fn close(unit: &mut Unit, id: UploadId, sql: &'static str, values: Vec<Value>) -> usize {
    // Writers of parts share-lock the upload: after this lock, the statements below see what they wrote.
    unit.at(LockRank::Upload).one(
        "SELECT id FROM multipart_uploads WHERE id = $1 AND state = 'open' /*lock*/",
        params![id],
        Verdict::NoSuchUpload,
    );
    unit.one(sql, values, Verdict::NoSuchUpload);
    unit.run(rows::NOTE_LEFTOVER, params![id]);
    unit.run(HELD_BYTES, params![id])
}

/// The bytes of the parts of the closed upload; `None` if it was not open.
pub(crate) fn held_bytes(closed: Result<Vec<Answer>, Error>, held: usize) -> Result<Option<u64>, Error> {
    match closed {
        Ok(answers) => answers[held].rows[0].size("bytes").map(Some),
        Err(Error::Guard(Verdict::NoSuchUpload)) => Ok(None),
        Err(error) => Err(error),
    }
}
