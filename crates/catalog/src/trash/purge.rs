//! Deletes objects from trash and releases their content: after the retention, when they expire, or on request.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::clock::millis_of;
use s3o_model::ids::ClaimToken;

use super::PrefixOperation;
use crate::error::{Error, Verdict};
use crate::release::{DELETES_NOTHING, Release, Selector};
use crate::unit::{LockRank, Row, Unit, Value};
use crate::{Catalog, params};

/// An object that was deleted from trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgedObject {
    /// Name of the bucket.
    pub bucket: String,
    /// For the audit line, as clients saw it.
    pub key: String,
    /// Length of the object.
    pub size_bytes: u64,
}

/// Why objects in trash are deleted without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrashEnd {
    /// The retention has ended: the one at their deletion, and this one of today, whichever is longer.
    Retention(Duration),
    /// The time that the client set for the object has passed.
    Expiry,
}

impl TrashEnd {
    const fn reason(self) -> Reason {
        match self {
            Self::Retention(_) => Reason::Sweep,
            Self::Expiry => Reason::Expiry,
        }
    }
}

static MARKED: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "trash_objects WHERE token = $1",
        column: "content_id",
        // Most rows carry no token, and `NOT (NULL = $1)` would skip them.
        deleted_trash: "x.token IS NOT NULL AND x.token = $1",
        ..DELETES_NOTHING
    })
});

/// The first key after the page that begins at `$2`. A key may have several versions in trash.
pub(super) const PAGE_END: &str = super::restore::PAGE_END;

const MARK_SPAN: &str = "WITH chosen AS MATERIALIZED (SELECT id FROM trash_objects WHERE bucket_id = $1 \
     AND key >= $2 AND key < $3 ORDER BY id /*lock*/) \
     UPDATE trash_objects SET token = $4 WHERE id IN (SELECT id FROM chosen)";

/// Rows whose retention by today's setting ends later than the one at their deletion. Each of them is read once.
const EXTEND: &str = "UPDATE trash_objects SET purge_at = deleted_at + $1 WHERE id IN (SELECT id FROM trash_objects \
     WHERE purge_at <= :now AND token IS NULL ORDER BY purge_at LIMIT $2) AND deleted_at + $1 > :now";

/// `MATERIALIZED` for the same reason as in the claim of cleanups.
const MARK_DUE: &str = "WITH chosen AS MATERIALIZED (SELECT id FROM trash_objects WHERE purge_at <= :now \
     AND deleted_at <= :now - $1 AND token IS NULL ORDER BY purge_at LIMIT $2 /*skip*/) \
     UPDATE trash_objects SET token = $3 WHERE id IN (SELECT id FROM chosen)";

const MARK_EXPIRED: &str = "WITH chosen AS MATERIALIZED (SELECT id FROM trash_objects WHERE expires_at <= :now \
     AND token IS NULL ORDER BY expires_at LIMIT $1 /*skip*/) \
     UPDATE trash_objects SET token = $2 WHERE id IN (SELECT id FROM chosen)";

/// Rows that an index finds by the token although they do not carry it when they are read by primary key.
const TRASH_NOT_MARKED: &str = "SELECT i.id FROM trash_objects i LEFT JOIN trash_objects o ON o.id = i.id \
     WHERE i.token = $1 AND (o.id IS NULL OR o.token IS NULL OR o.token <> $1) LIMIT 1";

/// The same, for rows that must be due.
const TRASH_NOT_DUE: &str = "SELECT i.id FROM trash_objects i LEFT JOIN trash_objects o ON o.id = i.id \
     WHERE i.token = $1 AND (o.id IS NULL OR (o.purge_at > :now AND coalesce(o.expires_at, :now + 1) > :now)) LIMIT 1";

/// Older versions of the marked keys are outdated: a restore must not bring them back.
const HIDE_OLDER: &str = "UPDATE trash_objects SET restorable = 0 WHERE restorable = 1 AND id IN \
     (SELECT o.id FROM trash_objects t JOIN trash_objects o ON o.bucket_id = t.bucket_id AND o.key = t.key \
     AND o.id < t.id WHERE t.token = $1)";

const SHOW: &str = "SELECT coalesce(b.name, '') AS bucket, t.key, t.size_bytes FROM trash_objects t \
     LEFT JOIN buckets b ON b.id = t.bucket_id WHERE t.token = $1 ORDER BY t.id";

const COUNT: &str = "UPDATE prefix_operations SET objects = objects + s.n, bytes = bytes + s.b \
     FROM (SELECT count(*) AS n, coalesce(sum(size_bytes), 0) AS b FROM trash_objects WHERE token = $1) s \
     WHERE id = $2";

/// A finding about an object, not about bytes: its backend is empty.
const NOTE: &str = "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
     SELECT 'not_purged', '', (SELECT name FROM buckets WHERE id = bucket_id) || '/' || key, size_bytes, $2, :now \
     FROM trash_objects WHERE token = $1 \
     ON CONFLICT (backend_name, physical_key, target, kind) DO UPDATE SET detail = excluded.detail";

/// The next failed deletion inserts its finding again.
const FORGET_FINDINGS: &str = "DELETE FROM findings WHERE kind = 'not_purged' AND backend_name = '' \
     AND physical_key IN (SELECT b.name || '/' || t.key FROM trash_objects t JOIN buckets b ON b.id = t.bucket_id \
     WHERE t.token = $1)";

pub(super) fn purged(row: &Row) -> Result<PurgedObject, Error> {
    Ok(PurgedObject { bucket: row.string("bucket")?, key: row.string("key")?, size_bytes: row.size("size_bytes")? })
}

/// Adds the statements that delete the marked rows. The answer at the returned index has the objects.
fn delete_marked(unit: &mut Unit, token: ClaimToken, reason: Reason) -> usize {
    let marker = params![token];
    unit.exactly(0, TRASH_NOT_MARKED, marker.clone(), Verdict::Damaged);
    unit.run(HIDE_OLDER, marker.clone());
    let shown = unit.run(SHOW, marker.clone());
    MARKED.lock_and_release(unit, &marker, reason);
    unit.run("DELETE FROM trash_objects WHERE token = $1", marker);
    shown
}

/// Adds the statements of one step of a purge on request.
pub(super) fn add(unit: &mut Unit, operation: &PrefixOperation, span: Vec<Value>, token: ClaimToken) -> usize {
    unit.at(LockRank::Trash).run(MARK_SPAN, [span, params![token]].concat());
    unit.run(COUNT, params![token, operation.id]);
    unit.run(FORGET_FINDINGS, params![token]);
    delete_marked(unit, token, Reason::Sweep)
}

/// Adds the statements that mark what is due. The answers at the returned indexes count rows that were read.
fn mark_due(unit: &mut Unit, end: TrashEnd, limit: usize, token: ClaimToken) -> Vec<usize> {
    let mut read = Vec::new();
    match end {
        TrashEnd::Expiry => read.push(unit.at(LockRank::Trash).run(MARK_EXPIRED, params![limit, token])),
        TrashEnd::Retention(today) => {
            let today = millis_of(today);
            read.push(unit.at(LockRank::Trash).run(EXTEND, params![today, limit]));
            read.push(unit.at(LockRank::Trash).run(MARK_DUE, params![today, limit, token]));
        }
    }
    read
}

pub(super) async fn end(
    catalog: &Catalog,
    end: TrashEnd,
    limit: usize,
    token: ClaimToken,
) -> Result<(Vec<PurgedObject>, bool), Error> {
    let mut unit = Unit::new("end_trash");
    let read = mark_due(&mut unit, end, limit, token);
    unit.exactly(0, TRASH_NOT_DUE, params![token], Verdict::Damaged);
    let shown = delete_marked(&mut unit, token, end.reason());
    let answers = catalog.write(unit).await?;
    let objects = answers[shown].rows.iter().map(purged).collect::<Result<_, _>>()?;
    Ok((objects, read.iter().map(|index| answers[*index].changed).sum::<usize>() >= limit))
}

pub(super) async fn skip(catalog: &Catalog, end: TrashEnd, why: &str, token: ClaimToken) -> Result<(), Error> {
    let mut unit = Unit::new("skip_trash");
    mark_due(&mut unit, end, 1, token);
    unit.run(NOTE, params![token, why]);
    catalog.write(unit).await.map(drop)
}
