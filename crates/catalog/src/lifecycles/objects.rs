//! Objects that are due, and the unit that removes them.

use s3o_model::cleanup::Reason;
use s3o_model::ids::ClaimToken;
use s3o_model::listing::just_after;
use s3o_model::names::ObjectKey;

use super::{Authority, DueBatch, DueObject, DuePage, DueRange, RULES_STAND, due};
use crate::error::{Error, Verdict};
use crate::objects::{moment, remove_marked};
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

/// Where the page that begins at `$2` ends: the first key behind it.
const PAGE_END: &str = "SELECT key FROM objects WHERE bucket_id = $1 AND key >= $2 ORDER BY key LIMIT 1 OFFSET $3";
const PAGE_END_BEFORE: &str =
    "SELECT key FROM objects WHERE bucket_id = $1 AND key >= $2 AND key < $4 ORDER BY key LIMIT 1 OFFSET $3";

macro_rules! due_page {
    ($bound:literal) => {
        concat!(
            "SELECT key, version_id, size_bytes, tags, last_modified, :now FROM objects WHERE bucket_id = $1 AND key >= $2 ",
            "AND ",
            due!("last_modified", "$3", "$4", "$5"),
            // What has expired is gone already, and somebody else's to remove.
            " AND (expires_at IS NULL OR expires_at > :now) ",
            $bound,
            "ORDER BY key LIMIT $6"
        )
    };
}

const DUE: &str = due_page!("");
const DUE_BEFORE: &str = due_page!("AND key < $7 ");

macro_rules! mark {
    ($columns:literal, $values:literal) => {
        concat!(
            "UPDATE objects SET token = $1 WHERE bucket_id = $2 AND ",
            $columns,
            " IN (SELECT ",
            $values,
            " FROM json_each($3) t) AND ",
            due!("last_modified", "$4", "$5", "$6"),
            " RETURNING key"
        )
    };
}

const MARK: &str = mark!("(key, version_id)", "t.value ->> 0, t.value ->> 1");
/// New tags make no new version.
const MARK_TAGGED: &str = mark!("(key, version_id, tags)", "t.value ->> 0, t.value ->> 1, t.value ->> 2");

/// The end of the page is looked up first: however few are due, no statement reads through more than a page.
pub(super) async fn due(catalog: &Catalog, range: &DueRange, limit: usize) -> Result<DuePage, Error> {
    let end = page_end(catalog, range, limit).await?;
    let before = end.as_ref().or(range.before.as_ref());
    let threshold = range.threshold;
    let mut values = params![range.bucket, &range.from, threshold.step_millis, threshold.age_millis];
    values.extend(params![threshold.from.millis(), limit]);
    values.extend(before.map(Into::into));
    let sql = if before.is_some() { DUE_BEFORE } else { DUE };
    let objects = catalog.read(sql, values).await?.iter().map(due_object).collect::<Result<Vec<_>, _>>()?;
    // Rows may have come between the two looks.
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
    rows.first().map(|row| row.text(0).map(str::to_owned)).transpose()
}

fn due_object(row: &Row) -> Result<DueObject, Error> {
    Ok(DueObject {
        key: row.parse(0)?,
        version: row.parse(1)?,
        size_bytes: row.size(2)?,
        tags: row.json(3)?,
        last_modified: moment(row, 4)?,
        seen_at: moment(row, 5)?,
    })
}

pub(super) async fn delete(
    catalog: &Catalog,
    batch: &DueBatch<'_>,
    token: ClaimToken,
) -> Result<Vec<ObjectKey>, Error> {
    let mut unit = Unit::new("delete_due");
    if let Authority::Bucket(revision) = batch.authority {
        unit.one(RULES_STAND, params![batch.bucket, revision], Verdict::RunAgain);
    }
    let (sql, seen) = if batch.by_tags { (MARK_TAGGED, with_tags(batch)) } else { (MARK, versions(batch)) };
    let threshold = batch.threshold;
    let mut values = params![token, batch.bucket, seen, threshold.step_millis, threshold.age_millis];
    values.extend(params![threshold.from.millis()]);
    let marked = unit.run(sql, values);
    remove_marked(&mut unit, token, Reason::Lifecycle);
    catalog.write(unit).await?[marked].rows.iter().map(|row| row.parse(0)).collect()
}

fn versions(batch: &DueBatch<'_>) -> String {
    let seen = batch.objects.iter().map(|object| (object.key.as_str(), object.version.to_string()));
    json(&seen.collect::<Vec<_>>())
}

/// Tags are kept as the same text that they serialise to.
fn with_tags(batch: &DueBatch<'_>) -> String {
    let seen = batch.objects.iter().map(|object| (object.key.as_str(), object.version.to_string(), json(&object.tags)));
    json(&seen.collect::<Vec<_>>())
}
