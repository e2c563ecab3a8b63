//! Deleting objects' rows: references are released, and content without a reference is condemned in the same unit.

use std::sync::LazyLock;

use s3o_model::cleanup::Reason;
use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ClaimToken};
use s3o_model::names::ObjectKey;

use super::{LOCK_INTENTS, SUPERSEDE};
use crate::error::{Error, Verdict};
use crate::release::{DELETES_NOTHING, Release, Selector};
use crate::unit::{Answer, LockRank, Unit, json};
use crate::{Catalog, params};

/// Bounds the runs of a delete while writes of its keys keep committing.
const RUNS_MAX: usize = 16;

static MARKED: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "objects WHERE token = $1",
        column: "content_id",
        // Most rows carry no token, and `NOT (NULL = $1)` would skip them.
        deleted_objects: "o.token IS NOT NULL AND o.token = $1",
        ..DELETES_NOTHING
    })
});

const MARK: &str = "UPDATE objects SET token = $1 \
     WHERE bucket_id = $2 AND key IN TEXTS($3) RETURNING key";

/// A list of keys and `ETag`s. A join with it instead would search all of the bucket.
const MARK_MATCHING: &str = "UPDATE objects SET token = $1 WHERE bucket_id = $2 \
     AND (key, etag) IN (SELECT t.value ->> 0, t.value ->> 1 FROM json_each($3) t) \
     AND (expires_at IS NULL OR expires_at > :now) AND (token IS NULL OR token <> $1) RETURNING key";

const MARK_ONE: &str = "UPDATE objects SET token = $1 WHERE bucket_id = $2 AND key = $3";

const MARK_ONE_MATCHING: &str = "UPDATE objects SET token = $1 WHERE bucket_id = $2 AND key = $3 AND etag = $4 \
     AND (expires_at IS NULL OR expires_at > :now)";

const LOCK_INTENTS_OF_MARKED: &str = "SELECT q.id FROM pending_objects q \
     JOIN objects o ON o.bucket_id = q.bucket_id AND o.key = q.key WHERE o.token = $1 ORDER BY q.id /*lock*/";

/// Marks the intents of the deleted keys, so that the reaper does not promote them.
const SUPERSEDE_MARKED: &str = "UPDATE pending_objects SET superseded = 1 WHERE superseded = 0 \
     AND (bucket_id, key) IN (SELECT bucket_id, key FROM objects WHERE token = $1)";

/// Rows that the index of tokens finds although they do not carry the token when they are read by primary key.
pub(crate) const ROWS_NOT_DUE: &str = "SELECT i.key FROM objects i \
     LEFT JOIN objects o ON o.bucket_id = i.bucket_id AND o.key = i.key \
     WHERE i.token = $1 AND (o.key IS NULL OR o.token IS NULL OR o.token <> $1) LIMIT 1";

/// The same, for rows that must have expired.
pub(crate) const ROWS_NOT_EXPIRED: &str = "SELECT i.key FROM objects i \
     LEFT JOIN objects o ON o.bucket_id = i.bucket_id AND o.key = i.key \
     WHERE i.token = $1 AND (o.key IS NULL OR o.expires_at IS NULL OR o.expires_at > :now) LIMIT 1";

const DELETE_MARKED: &str = "DELETE FROM objects WHERE token = $1";

/// Target of one delete request, with its condition.
#[derive(Debug, Clone, Copy)]
pub struct ObjectToDelete<'a> {
    /// It must exist.
    pub bucket: BucketId,
    /// Its key; it need not exist.
    pub key: &'a ObjectKey,
    /// Deletes it only if it still has this `ETag`.
    pub if_match: Option<&'a ETag>,
    /// Hint: the factor of the bucket by the configuration of this instance.
    pub factor: usize,
}

/// Deletes one object.
///
/// The row is marked first, so that all statements mean the same row: a row that appears later is not deleted.
pub(super) async fn delete_one(
    catalog: &Catalog,
    object: &ObjectToDelete<'_>,
    token: ClaimToken,
) -> Result<bool, Error> {
    let ObjectToDelete { bucket, key, if_match, factor } = *object;
    let (place, marker) = (params![bucket, key], params![token]);
    let mut unit = Unit::new("delete_object");
    unit.at(LockRank::Object);
    match if_match {
        None => unit.run(MARK_ONE, params![token, bucket, key]),
        Some(etag) => unit.one(MARK_ONE_MATCHING, params![token, bucket, key, etag], Verdict::PreconditionFailed),
    };
    unit.lock(LockRank::Intent, LOCK_INTENTS, place.clone());
    MARKED.lock_contents(&mut unit, &marker);
    // Content with one copy has one quota row, so there is no order to keep.
    if factor > 1 {
        MARKED.lock_quota_rows(&mut unit, &marker, None, None);
    }
    MARKED.release(&mut unit, &marker, Reason::Delete);
    let deleted = unit.run(DELETE_MARKED, marker);
    unit.run(SUPERSEDE, place.clone());
    if if_match.is_none() {
        unit.exactly(0, "SELECT key FROM objects WHERE bucket_id = $1 AND key = $2", place, Verdict::RunAgain);
    }
    Ok(retry(catalog, &unit).await?[deleted].changed == 1)
}

/// Adds the statements that delete the rows which carry `token`. The answer at the returned index has the number of
/// deleted rows.
pub(crate) fn delete_marked(unit: &mut Unit, token: ClaimToken, reason: Reason) -> usize {
    let marker = params![token];
    unit.exactly(0, ROWS_NOT_DUE, marker.clone(), Verdict::Damaged);
    unit.lock(LockRank::Intent, LOCK_INTENTS_OF_MARKED, marker.clone());
    MARKED.lock_and_release(unit, &marker, reason);
    unit.run(SUPERSEDE_MARKED, marker.clone());
    unit.run(DELETE_MARKED, marker)
}

/// Retries a unit that finds new rows of its keys. The reaper may have promoted a write after the rows were marked and
/// before its intent was. After a delete is acknowledged, no object may appear that was written before it.
async fn retry(catalog: &Catalog, unit: &Unit) -> Result<Vec<Answer>, Error> {
    for _ in 1..RUNS_MAX {
        match catalog.write(unit.clone()).await {
            Err(Error::Guard(Verdict::RunAgain)) => {}
            done => return done,
        }
    }
    catalog.write(unit.clone()).await
}

/// Deletes many objects of one bucket in one unit.
pub(super) async fn delete_many(
    catalog: &Catalog,
    bucket: BucketId,
    targets: &[(ObjectKey, Option<ETag>)],
    token: ClaimToken,
) -> Result<Vec<ObjectKey>, Error> {
    let plain: Vec<&str> = targets.iter().filter(|(_, etag)| etag.is_none()).map(|(key, _)| key.as_str()).collect();
    let plain = json(&plain);
    let matching: Vec<(&str, &str)> =
        targets.iter().filter_map(|(key, etag)| Some((key.as_str(), etag.as_ref()?.as_str()))).collect();
    let mut unit = Unit::new("delete_objects");
    let mut marked = vec![unit.at(LockRank::Object).run(MARK, params![token, bucket, &plain])];
    if !matching.is_empty() {
        marked.push(unit.at(LockRank::Object).run(MARK_MATCHING, params![token, bucket, json(&matching)]));
    }
    delete_marked(&mut unit, token, Reason::Delete);
    // Keys without a row may have writes under way, which began before this delete.
    unit.run(
        "UPDATE pending_objects SET superseded = 1 WHERE bucket_id = $1 AND superseded = 0 \
         AND key IN TEXTS($2)",
        params![bucket, &plain],
    );
    unit.exactly(
        0,
        "SELECT key FROM objects WHERE bucket_id = $1 AND key IN TEXTS($2)",
        params![bucket, &plain],
        Verdict::RunAgain,
    );
    let answers = retry(catalog, &unit).await?;
    marked.iter().flat_map(|index| &answers[*index].rows).map(|row| row.parse("key")).collect()
}
