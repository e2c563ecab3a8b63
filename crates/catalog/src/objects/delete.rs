//! Removing objects' rows: the references go, and what nothing refers to any more is condemned in
//! the same unit.

use std::sync::LazyLock;

use s3o_model::cleanup::Reason;
use s3o_model::etag::ETag;
use s3o_model::ids::{BucketId, ClaimToken};
use s3o_model::names::ObjectKey;

use super::{LOCK_INTENTS, SUPERSEDE};
use crate::error::{Error, Verdict};
use crate::release::{NONE, Release, Selector};
use crate::unit::{Answer, Unit, json};
use crate::{Catalog, params};

/// How often a delete is tried while writes of its keys keep appearing.
const RUNS_MAX: usize = 16;

static MARKED: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "objects WHERE token = $1",
        column: "content_id",
        // Most rows carry no token, and `NOT (NULL = $1)` would overlook them.
        dying_objects: "o.token IS NOT NULL AND o.token = $1",
        dying_pieces: NONE,
        dying_parts: NONE,
        dying_pins: NONE,
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

/// Tells the reaper that a later change of these keys was acknowledged.
const SUPERSEDE_MARKED: &str = "UPDATE pending_objects SET superseded = 1 WHERE superseded = 0 \
     AND (bucket_id, key) IN (SELECT bucket_id, key FROM objects WHERE token = $1)";

/// Rows that the index of tokens leads to and that do not carry the token themselves, by their primary key.
pub(crate) const MISLED: &str = "SELECT i.key FROM objects i \
     LEFT JOIN objects o ON o.bucket_id = i.bucket_id AND o.key = i.key \
     WHERE i.token = $1 AND (o.key IS NULL OR o.token IS NULL OR o.token <> $1) LIMIT 1";

/// The same, for rows that must have expired.
pub(crate) const MISLED_BY_EXPIRY: &str = "SELECT i.key FROM objects i \
     LEFT JOIN objects o ON o.bucket_id = i.bucket_id AND o.key = i.key \
     WHERE i.token = $1 AND (o.key IS NULL OR o.expires_at IS NULL OR o.expires_at > :now) LIMIT 1";

const REMOVE_MARKED: &str = "DELETE FROM objects WHERE token = $1";

/// One object, only if it still has this `ETag` where one is given.
///
/// The row is marked first: one that appears only later is not meant, and by its name alone half
/// of the unit would see it and half would not.
pub(super) async fn delete_one(
    catalog: &Catalog,
    bucket: BucketId,
    key: &ObjectKey,
    if_match: Option<&ETag>,
    token: ClaimToken,
) -> Result<bool, Error> {
    let (place, marker) = (params![bucket, key], params![token]);
    let mut unit = Unit::new("delete_object");
    match if_match {
        None => unit.run(MARK_ONE, params![token, bucket, key]),
        Some(etag) => unit.one(MARK_ONE_MATCHING, params![token, bucket, key, etag], Verdict::PreconditionFailed),
    };
    unit.lock(LOCK_INTENTS, place.clone());
    MARKED.lock(&mut unit, &marker);
    MARKED.add_to(&mut unit, &marker, Reason::Delete);
    let gone = unit.run(REMOVE_MARKED, marker);
    unit.run(SUPERSEDE, place.clone());
    if if_match.is_none() {
        unit.exactly(0, "SELECT key FROM objects WHERE bucket_id = $1 AND key = $2", place, Verdict::RunAgain);
    }
    Ok(again(catalog, &unit).await?[gone].changed == 1)
}

/// Adds the statements that remove the rows which carry `token`; the answer at the returned place
/// tells how many went.
pub(crate) fn remove_marked(unit: &mut Unit, token: ClaimToken, reason: Reason) -> usize {
    let marker = params![token];
    unit.exactly(0, MISLED, marker.clone(), Verdict::Damaged);
    unit.lock(LOCK_INTENTS_OF_MARKED, marker.clone());
    MARKED.lock(unit, &marker);
    MARKED.enter(unit, &marker, None, None);
    MARKED.add_to(unit, &marker, reason);
    unit.run(SUPERSEDE_MARKED, marker.clone());
    unit.run(REMOVE_MARKED, marker)
}

/// Runs a unit again while rows appear under its hands. A write whose writer is gone may have been
/// finished after the rows were marked and before its intent was flagged; the answer to a delete
/// must not be followed by an object that was written before it.
async fn again(catalog: &Catalog, unit: &Unit) -> Result<Vec<Answer>, Error> {
    for _ in 1..RUNS_MAX {
        match catalog.write(unit.clone()).await {
            Err(Error::Guard(Verdict::RunAgain)) => {}
            done => return done,
        }
    }
    catalog.write(unit.clone()).await
}

/// Many objects of one bucket: marked first, so that every later statement means the same rows.
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
    let mut places = vec![unit.run(MARK, params![token, bucket, &plain])];
    if !matching.is_empty() {
        places.push(unit.run(MARK_MATCHING, params![token, bucket, json(&matching)]));
    }
    remove_marked(&mut unit, token, Reason::Delete);
    // Keys that had no row may still have writes under way that this delete comes after.
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
    let answers = again(catalog, &unit).await?;
    places.iter().flat_map(|place| &answers[*place].rows).map(|row| row.parse(0)).collect()
}
