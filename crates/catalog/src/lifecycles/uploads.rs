//! Due uploads, and the unit that aborts one.

use std::sync::LazyLock;

use s3o_model::ids::UploadId;
use s3o_model::lifecycle::Threshold;

use super::{DueRange, DueUpload, due};
use crate::error::{Error, Verdict};
use crate::unit::{LockRank, Row, Unit};
use crate::uploads::{close, held_bytes};
use crate::{Catalog, params};

fn select(bound: &str) -> String {
    let due = due("created_at", "$4", "$5", "$6");
    format!(
        "SELECT id, key, created_at, :now AS now FROM multipart_uploads WHERE bucket_id = $1 AND state = 'open' \
         AND (key, id) > ($2, $3) AND {due}{bound} ORDER BY key, id LIMIT $7"
    )
}

static DUE: LazyLock<String> = LazyLock::new(|| select(""));
static DUE_BEFORE: LazyLock<String> = LazyLock::new(|| select(" AND key < $8"));

static ABORT: LazyLock<String> = LazyLock::new(|| {
    let due = due("created_at", "$2", "$3", "$4");
    format!(
        "UPDATE multipart_uploads SET state = 'aborted', closed_at = :now WHERE id = $1 AND state = 'open' AND {due}"
    )
});

/// Returns the bucket of upload `$1` if its rules still have the revision `$2`.
const RULES_STAND: &str = "SELECT id FROM buckets WHERE lifecycle_revision = $2 \
     AND id = (SELECT bucket_id FROM multipart_uploads WHERE id = $1) /*share*/";

pub(super) async fn due_uploads(
    catalog: &Catalog,
    range: &DueRange,
    after: Option<&DueUpload>,
    limit: usize,
) -> Result<Vec<DueUpload>, Error> {
    let (key, id) = after.map_or((range.from.as_str(), String::new()), |last| (last.key.as_str(), last.id.to_string()));
    let threshold = range.threshold;
    let mut values = params![range.bucket, key, id, threshold.step_millis, threshold.age_millis];
    values.extend(params![threshold.from.millis(), limit]);
    values.extend(range.before.as_ref().map(Into::into));
    let sql: &'static str = if range.before.is_some() { &DUE_BEFORE } else { &DUE };
    catalog.read(sql, values).await?.iter().map(due_upload).collect()
}

fn due_upload(row: &Row) -> Result<DueUpload, Error> {
    let (id, key) = (row.parse("id")?, row.parse("key")?);
    Ok(DueUpload { id, key, created_at: row.time("created_at")?, seen_at: row.time("now")? })
}

pub(super) async fn abort(
    catalog: &Catalog,
    id: UploadId,
    revision: i64,
    threshold: Threshold,
) -> Result<Option<u64>, Error> {
    let mut unit = Unit::new("abort_due");
    unit.at(LockRank::Bucket).one(RULES_STAND, params![id, revision], Verdict::RunAgain);
    let numbers = params![id, threshold.step_millis, threshold.age_millis, threshold.from.millis()];
    let held = close(&mut unit, id, &ABORT, numbers);
    held_bytes(catalog.write(unit).await, held)
}
