//! Uploads that nobody works on any more.

use std::time::Duration;

use async_trait::async_trait;
use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::ids::UploadId;

use super::rows;
use crate::error::{Error, Verdict};
use crate::unit::{Answer, Row, Unit, Value};
use crate::{Catalog, params};

/// S3 shows moments in whole seconds, so what is stored may be this much older than what happened.
const ROUNDED_MILLIS: i64 = 999;

/// An open upload without activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleUpload {
    /// The upload.
    pub id: UploadId,
    /// Its bucket.
    pub bucket: String,
    /// Its key.
    pub key: String,
    /// For how long nothing happened to it.
    pub idle: Duration,
}

/// What is known of uploads that nobody works on. Activity is the newest of the upload itself,
/// its parts, and the leases of parts under way.
#[async_trait]
pub trait StaleUploads: Send + Sync {
    /// Open uploads without activity for longer than `timeout`, the oldest first.
    async fn stale_uploads(&self, timeout: Duration, limit: usize) -> Result<Vec<StaleUpload>, Error>;

    /// Aborts an upload if it still is open and without activity. How many bytes its parts have is
    /// returned; nothing, if it was closed or something happened to it.
    async fn abort_stale_upload(&self, id: UploadId, timeout: Duration) -> Result<Option<u64>, Error>;
}

// Sub-selects, not joins: each is a look into one upload's few rows, whatever the planner thinks.
macro_rules! newest_part {
    () => {
        "coalesce((SELECT max(last_modified) FROM multipart_parts WHERE upload_id = u.id), 0)"
    };
}

macro_rules! newest_lease {
    () => {
        "coalesce((SELECT max(lease_until) FROM pending_objects q WHERE q.bucket_id = u.bucket_id \
         AND q.key = u.key AND q.upload_id = u.id AND q.state = 'open'), 0)"
    };
}

/// Uploads `u` that are open and had no activity since `$1` before now.
macro_rules! stale {
    () => {
        concat!(
            "u.state = 'open' AND u.created_at <= :now - $1 AND ",
            newest_part!(),
            " <= :now - $1 AND ",
            newest_lease!(),
            " <= :now - $1"
        )
    };
}

const STALE: &str = concat!(
    "SELECT u.id, (SELECT name FROM buckets WHERE id = u.bucket_id), u.key, :now, u.created_at, ",
    newest_part!(),
    ", ",
    newest_lease!(),
    " FROM multipart_uploads u WHERE ",
    stale!(),
    " ORDER BY u.created_at, u.id LIMIT $2"
);

const ABORT: &str =
    concat!("UPDATE multipart_uploads AS u SET state = 'aborted', closed_at = :now WHERE u.id = $2 AND ", stale!());

fn stale_upload(row: &Row) -> Result<StaleUpload, Error> {
    let moment = |column| row.int(column).map(Timestamp::from_millis);
    let active = moment(4)?.max(moment(5)?).max(moment(6)?);
    Ok(StaleUpload {
        id: row.parse(0)?,
        bucket: row.opt_text(1)?.unwrap_or_default().to_owned(),
        key: row.text(2)?.to_owned(),
        idle: moment(3)?.since(active),
    })
}

fn cutoff(timeout: Duration) -> i64 {
    millis_of(timeout).saturating_add(ROUNDED_MILLIS)
}

#[async_trait]
impl StaleUploads for Catalog {
    async fn stale_uploads(&self, timeout: Duration, limit: usize) -> Result<Vec<StaleUpload>, Error> {
        self.survey(STALE, params![cutoff(timeout), limit]).await?.iter().map(stale_upload).collect()
    }

    async fn abort_stale_upload(&self, id: UploadId, timeout: Duration) -> Result<Option<u64>, Error> {
        let mut unit = Unit::new("abort_stale_upload");
        let held = close(&mut unit, id, ABORT, params![cutoff(timeout), id]);
        held_bytes(self.write(unit).await, held)
    }
}

/// Adds the statements that close an open upload by one of the caller's, which says when it may be. The answer
/// at the returned place tells how many bytes its parts have.
pub(crate) fn close(unit: &mut Unit, id: UploadId, sql: &'static str, values: Vec<Value>) -> usize {
    // Writers of parts hold the upload: once it is ours, what they did is seen below.
    unit.one(
        "SELECT id FROM multipart_uploads WHERE id = $1 AND state = 'open' /*lock*/",
        params![id],
        Verdict::NoSuchUpload,
    );
    unit.one(sql, values, Verdict::NoSuchUpload);
    unit.run(rows::NOTE_LEFTOVER, params![id]);
    unit.run("SELECT CAST(coalesce(sum(length), 0) AS BIGINT) FROM multipart_parts WHERE upload_id = $1", params![id])
}

/// How many bytes the parts of an upload have that was closed; nothing, if it was not.
pub(crate) fn held_bytes(closed: Result<Vec<Answer>, Error>, held: usize) -> Result<Option<u64>, Error> {
    match closed {
        Ok(answers) => answers[held].rows[0].size(0).map(Some),
        Err(Error::Guard(Verdict::NoSuchUpload)) => Ok(None),
        Err(error) => Err(error),
    }
}
