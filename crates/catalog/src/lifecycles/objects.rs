//! Due objects, and the unit that deletes them.

use std::sync::LazyLock;

use s3o_model::cleanup::Reason;
use s3o_model::ids::ClaimToken;
use s3o_model::listing::just_after;
use s3o_model::names::ObjectKey;

use super::{Authority, DueBatch, DueObject, DuePage, DueRange, RULES_STAND, due};
use crate::error::{Error, Verdict};
use crate::objects::delete_marked;
use crate::unit::{LockRank, Row, Unit, json};
use crate::{Catalog, params};

/// The first key after the page that begins at `$2`.
const PAGE_END: &str = "SELECT key FROM objects WHERE bucket_id = $1 AND key >= $2 ORDER BY key LIMIT 1 OFFSET $3";
const PAGE_END_BEFORE: &str =
    "SELECT key FROM objects WHERE bucket_id = $1 AND key >= $2 AND key < $4 ORDER BY key LIMIT 1 OFFSET $3";

/// Expired objects are left to the expiry worker.
fn due_page(bound: &str) -> String {
    let due = due("last_modified", "$3", "$4", "$5");
    format!(
        "SELECT key, version_id, size_bytes, tags, last_modified, :now AS now FROM objects \
         WHERE bucket_id = $1 AND key >= $2 AND {due} AND (expires_at IS NULL OR expires_at > :now) \
         {bound}ORDER BY key LIMIT $6"
    )
}

static DUE: LazyLock<String> = LazyLock::new(|| due_page(""));
static DUE_BEFORE: LazyLock<String> = LazyLock::new(|| due_page("AND key < $7 "));

fn mark(columns: &str, values: &str) -> String {
    let due = due("last_modified", "$4", "$5", "$6");
    format!(
        "UPDATE objects SET token = $1 WHERE bucket_id = $2 AND {columns} IN (SELECT {values} FROM json_each($3) t) \
         AND {due} RETURNING key"
    )
}

static MARK: LazyLock<String> = LazyLock::new(|| mark("(key, version_id)", "t.value ->> 0, t.value ->> 1"));
/// A change of the tags does not change the version.
static MARK_TAGGED: LazyLock<String> =
    LazyLock::new(|| mark("(key, version_id, tags)", "t.value ->> 0, t.value ->> 1, t.value ->> 2"));

/// Finds the end of the page first, so that a statement reads at most one page even if few objects are due.
pub(super) async fn due_objects(catalog: &Catalog, range: &DueRange, limit: usize) -> Result<DuePage, Error> {
    let end = page_end(catalog, range, limit).await?;
    let before = end.as_ref().or(range.before.as_ref());
    let threshold = range.threshold;
    let mut values = params![range.bucket, &range.from, threshold.step_millis, threshold.age_millis];
    values.extend(params![threshold.from.millis(), limit]);
    values.extend(before.map(Into::into));
    let sql: &'static str = if before.is_some() { &DUE_BEFORE } else { &DUE };
    let objects = catalog.read(sql, values).await?.iter().map(due_object).collect::<Result<Vec<_>, _>>()?;
    // Objects may have been inserted between the two queries.
    let full = objects.last().filter(|_| objects.len() >= limit);
    let next = full.map(|last| just_after(last.key.as_str())).or(end);
    Ok(DuePage { objects, next })
}

async fn page_end(catalog: &Catalog, range: &DueRange, limit: usize) -> Result<Option<String>, Error> {
    let mut values = params![range.bucket, &range.from, limit];
    let sql = match &range.before {
        Some(before) => {
            values.extend(params![before]);
            PAGE_END_BEFORE
        }
        None => PAGE_END,
    };
    let rows = catalog.read(sql, values).await?;
    rows.first().map(|row| row.string("key")).transpose()
}

fn due_object(row: &Row) -> Result<DueObject, Error> {
    Ok(DueObject {
        key: row.parse("key")?,
        version: row.parse("version_id")?,
        size_bytes: row.size("size_bytes")?,
        tags: row.json("tags")?,
        last_modified: row.time("last_modified")?,
        seen_at: row.time("now")?,
    })
}

pub(super) async fn delete(
    catalog: &Catalog,
    batch: &DueBatch<'_>,
    token: ClaimToken,
) -> Result<Vec<ObjectKey>, Error> {
    let mut unit = Unit::new("delete_due");
    if let Authority::Bucket(revision) = batch.authority {
        unit.at(LockRank::Bucket).one(RULES_STAND, params![batch.bucket, revision], Verdict::RunAgain);
    }
    let (sql, seen): (&'static str, _) =
        if batch.by_tags { (&MARK_TAGGED, with_tags(batch)) } else { (&MARK, versions(batch)) };
    let threshold = batch.threshold;
    let mut values = params![token, batch.bucket, seen, threshold.step_millis, threshold.age_millis];
    values.extend(params![threshold.from.millis()]);
    let marked = unit.at(LockRank::Object).run(sql, values);
    delete_marked(&mut unit, token, Reason::Lifecycle);
    catalog.write(unit).await?[marked].rows.iter().map(|row| row.parse("key")).collect()
}

fn versions(batch: &DueBatch<'_>) -> String {
    let seen = batch.objects.iter().map(|object| (object.key.as_str(), object.version.to_string()));
    json(&seen.collect::<Vec<_>>())
}

/// The column holds the text that tags serialise to.
fn with_tags(batch: &DueBatch<'_>) -> String {
    let seen = batch.objects.iter().map(|object| (object.key.as_str(), object.version.to_string(), json(&object.tags)));
    json(&seen.collect::<Vec<_>>())
}
