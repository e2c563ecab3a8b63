//! The rows of operations: begun, continued by the holder of the token, taken over after the lease, deleted at the end.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::clock::millis_of;
use s3o_model::ids::{BucketId, ClaimToken};
use s3o_model::listing::successor;
use s3o_model::names::KEY_BYTES_MAX;

use super::restore::REVIEW_PIECES;
use super::{BeginPrefixOperation, PrefixOperation, PrefixOperationKind, counts_of};
use crate::error::{Error, Verdict};
use crate::objects::BUCKET_STANDS;
use crate::unit::{LockRank, Row, Unit};
use crate::{Catalog, params};

/// Two operations that begin at the same time would not see each other's rows.
const COUNT_START: &str = "UPDATE prefix_operation_starts SET started = started + 1";

/// True for a row whose range has keys in common with the range from `$4` to `$5` of bucket `$3`.
const OVERLAPS: &str = "bucket_id = $3 AND prefix < $5 AND range_end > $4";

/// Rows of operations with the names of their buckets.
const SHOWN: &str = "SELECT id, kind, bucket_id, \
     coalesce((SELECT name FROM buckets WHERE id = bucket_id), '') AS bucket_name, prefix, range_end, cutoff, \
     retention, position, token, objects, bytes, existing, expired, created_at FROM prefix_operations";

/// Returns the row if the caller holds it at this position.
pub(super) const HELD: &str =
    "SELECT id FROM prefix_operations WHERE id = $1 AND token = $2 AND position = $3 /*lock*/";

const ADVANCE: &str = "UPDATE prefix_operations SET position = coalesce(CAST($2 AS TEXT), position), \
     lease_until = :now + $3 WHERE id = $1 RETURNING objects, bytes, existing, expired";

/// Greater than every text that starts with the prefix.
fn range_end(prefix: &str) -> String {
    // Longer than any key, so it is greater than each of them.
    let past_all_keys = || "\u{10FFFF}".repeat(KEY_BYTES_MAX / 4 + 1);
    successor(prefix).unwrap_or_else(past_all_keys)
}

fn operation(row: &Row) -> Result<PrefixOperation, Error> {
    Ok(PrefixOperation {
        id: row.parse("id")?,
        kind: row.parse("kind")?,
        bucket: BucketId(row.int("bucket_id")?),
        bucket_name: row.string("bucket_name")?,
        prefix: row.string("prefix")?,
        started_at: row.time("created_at")?,
        counts: counts_of(row)?,
        range_end: row.string("range_end")?,
        cutoff: row.int("cutoff")?,
        retention: row.int("retention")?,
        position: row.string("position")?,
        token: row.parse("token")?,
    })
}

pub(super) async fn begin(catalog: &Catalog, begin: &BeginPrefixOperation<'_>) -> Result<PrefixOperation, Error> {
    const BEGIN: &str = "INSERT INTO prefix_operations (id, kind, bucket_id, prefix, range_end, cutoff, retention, \
         position, token, lease_until, created_at) SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS BIGINT), \
         CAST($4 AS TEXT), CAST($5 AS TEXT), :now, CAST($6 AS BIGINT), CAST($4 AS TEXT), CAST($7 AS TEXT), \
         :now + $8, :now WHERE NOT EXISTS (SELECT 1 FROM prefix_operations WHERE ";
    static SQL: LazyLock<String> = LazyLock::new(|| format!("{BEGIN}{OVERLAPS}) RETURNING id"));
    let BeginPrefixOperation { id, kind, bucket, prefix, retention, token, lease } = *begin;
    let mut values = params![id, kind.as_str(), bucket, prefix, range_end(prefix), millis_of(retention), token];
    values.extend(params![millis_of(lease)]);
    let mut unit = Unit::new("begin_prefix_operation");
    unit.at(LockRank::Operation).run(COUNT_START, vec![]);
    unit.at(LockRank::Bucket).one(BUCKET_STANDS, params![bucket], Verdict::NoSuchBucket);
    unit.one(&SQL, values, Verdict::Overlaps);
    let row = unit.run(row_of(), params![id]);
    operation(&catalog.write(unit).await?[row].rows[0])
}

fn row_of() -> &'static str {
    static SQL: LazyLock<String> = LazyLock::new(|| format!("{SHOWN} WHERE id = $1"));
    &SQL
}

pub(super) async fn overlapping(
    catalog: &Catalog,
    bucket: BucketId,
    prefix: &str,
) -> Result<Vec<PrefixOperation>, Error> {
    let all = all(catalog).await?;
    let end = range_end(prefix);
    let overlaps =
        |other: &PrefixOperation| other.bucket == bucket && *other.prefix < *end.as_str() && *other.range_end > *prefix;
    Ok(all.into_iter().filter(overlaps).collect())
}

pub(super) async fn all(catalog: &Catalog) -> Result<Vec<PrefixOperation>, Error> {
    static SQL: LazyLock<String> = LazyLock::new(|| format!("{SHOWN} ORDER BY created_at, id"));
    catalog.survey(&SQL, vec![]).await?.iter().map(operation).collect()
}

pub(super) async fn take_over(
    catalog: &Catalog,
    token: ClaimToken,
    lease: Duration,
) -> Result<Option<PrefixOperation>, Error> {
    const ENDED: &str = "SELECT id FROM prefix_operations WHERE lease_until <= :now ORDER BY created_at, id LIMIT 1";
    const TAKE: &str = "UPDATE prefix_operations SET token = $2, lease_until = :now + $3 \
         WHERE id = $1 AND lease_until <= :now";
    let found = catalog.read(ENDED, vec![]).await?;
    let Some(id) = found.first().map(|row| row.string("id")).transpose()? else { return Ok(None) };
    let mut unit = Unit::new("take_over_prefix_operation");
    unit.at(LockRank::Operation).run(TAKE, params![&id, token, millis_of(lease)]);
    let row = unit.run(row_of(), params![&id]);
    let answers = catalog.write(unit).await?;
    let taken = answers[row].rows.first().map(operation).transpose()?;
    Ok(taken.filter(|operation| operation.token == token))
}

/// Adds the statements that end a step; the answer at the returned index has the counts.
pub(super) fn advance(unit: &mut Unit, operation: &PrefixOperation, next: Option<&str>, lease: Duration) -> usize {
    let advanced = unit.run(ADVANCE, params![operation.id, next, millis_of(lease)]);
    if next.is_none() {
        if operation.kind == PrefixOperationKind::Restore {
            unit.run(REVIEW_PIECES, params![operation.id]);
        }
        unit.run("DELETE FROM prefix_operations WHERE id = $1", params![operation.id]);
    }
    advanced
}

pub(super) async fn abandon(catalog: &Catalog, operation: &PrefixOperation) -> Result<(), Error> {
    const ABANDON: &str = "DELETE FROM prefix_operations WHERE id = $1 AND token = $2";
    let mut unit = Unit::new("abandon_prefix_operation");
    unit.at(LockRank::Operation).run(ABANDON, params![operation.id, operation.token]);
    catalog.write(unit).await.map(drop)
}

pub(super) async fn release(catalog: &Catalog, operation: &PrefixOperation) -> Result<(), Error> {
    const RELEASE: &str = "UPDATE prefix_operations SET lease_until = :now WHERE id = $1 AND token = $2";
    let mut unit = Unit::new("release_prefix_operation");
    unit.at(LockRank::Operation).run(RELEASE, params![operation.id, operation.token]);
    catalog.write(unit).await.map(drop)
}
