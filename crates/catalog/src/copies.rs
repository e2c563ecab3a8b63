//! Copies of content: which of them count, how many are missing, and which are suspect.
//!
//! A suspect copy is one of which a reader or a check found that it differs from what was written. It is read only if
//! there is no better one, and the next copy of the same content replaces it.

mod damaged;
mod lost;
mod moves;
mod remove;
mod replica;
mod review;
mod work;

use std::sync::LazyLock;

use s3o_model::clock::Timestamp;
use s3o_model::content::{Location, ReadableCopy};
use s3o_model::ids::ContentId;

use crate::error::Error;
use crate::objects::{TRUST, readable_copy};
use crate::unit::{LockRank, Unit};
use crate::{Catalog, params};

pub use damaged::WrittenDigests;
pub(crate) use damaged::{HAS_NO_GOOD_COPY, NO_GOOD_COPY};
pub use lost::LocatedContent;
pub use moves::{ReplacedCopy, ReplicaSource};
pub use remove::RemoveCopy;
pub(crate) use remove::disputed;
pub use replica::{Replica, StageReplica};
pub(crate) use review::start_review;
pub use work::{CopyWork, CountedLocation, DueCopies};

/// True for a location `l` that counts towards the factor of its content. Every decision about the number of copies
/// uses this expression. A copy on a frozen or unreachable backend counts.
pub(crate) const COUNTS: &str = "l.state = 'present' AND EXISTS (SELECT 1 FROM backends k \
     WHERE k.name = l.backend_name AND k.draining = 0 AND k.unhealthy_since IS NULL AND k.removing_since IS NULL \
     AND k.removed_at IS NULL \
     AND coalesce(l.verified_at, 0) >= coalesce(k.trust_from, 0))";

/// SQL that is true if a content has a copy that is not lost: another one can be written.
pub(crate) fn has_copy(content: &str) -> String {
    format!("EXISTS (SELECT 1 FROM object_locations h WHERE h.content_id = {content} AND h.state <> 'lost')")
}

/// True for a row of `object_locations` whose bytes may still be there. A lost copy on a backend that was written off
/// is not queued for deletion: the queue row would wait forever.
pub(crate) const MAY_EXIST: &str = "(object_locations.state <> 'lost' OR EXISTS (SELECT 1 FROM backends g \
     WHERE g.name = object_locations.backend_name AND g.removing_since IS NULL))";

/// True for a location `l` that does not count although copies on its backend do: it is damaged, or it was not found
/// there since the backend was accepted.
const UNPROVEN: &str = "EXISTS (SELECT 1 FROM backends u WHERE u.name = l.backend_name AND u.draining = 0 \
     AND u.unhealthy_since IS NULL AND u.removing_since IS NULL AND u.removed_at IS NULL \
     AND (l.state = 'suspect' OR (l.state = 'present' AND coalesce(l.verified_at, 0) < coalesce(u.trust_from, 0))))";

/// SQL for the number of copies of a content that are to be probed, replaced or removed.
fn unproven_copies(content: &str) -> String {
    format!("(SELECT count(*) FROM object_locations l WHERE l.content_id = {content} AND {UNPROVEN})")
}

/// SQL for the number of copies of a content that count.
pub(crate) fn counting_copies(content: &str) -> String {
    format!("(SELECT count(*) FROM object_locations l WHERE l.content_id = {content} AND {COUNTS})")
}

/// SQL for the number of copies that a content lacks.
pub(crate) fn missing_copies(content: &str) -> String {
    let copies = counting_copies(content);
    format!(
        "(SELECT CASE WHEN m.factor > m.n THEN m.factor - m.n ELSE 0 END \
         FROM (SELECT factor, {copies} AS n FROM contents WHERE id = {content}) m)"
    )
}

/// SQL that notes contents as work if the number of their copies differs from their factor, or if they have enough
/// copies and another one that is unproven; `chosen` is a condition on `contents`. Joined content is always noted: its
/// pieces are compared later, in steps. A noted row keeps its backoff.
pub(crate) fn note_work_of(chosen: &str) -> String {
    let (copies, unproven) = (counting_copies("contents.id"), unproven_copies("contents.id"));
    let has_copy = has_copy("w.id");
    format!(
        "INSERT INTO copy_work (content_id, copies, excess, due, created_at) \
         SELECT w.id, w.n, CASE WHEN w.kind = 'whole' AND w.n >= w.factor THEN 1 ELSE 0 END, :now, :now \
         FROM (SELECT id, kind, factor, {copies} AS n, {unproven} AS m FROM contents \
         WHERE {chosen} AND state = 'live') w \
         WHERE w.kind = 'joined' OR ((w.n <> w.factor OR w.m > 0) AND {has_copy}) \
         ON CONFLICT (content_id) DO UPDATE SET copies = excluded.copies, excess = excluded.excess, \
         due = CASE WHEN copy_work.excess = excluded.excess THEN copy_work.due ELSE excluded.due END"
    )
}

static NOTE_WORK: LazyLock<String> = LazyLock::new(|| note_work_of("id = $1"));

/// Adds the statement that notes a locked content as work if it has too few or too many copies.
pub(crate) fn note_work(unit: &mut Unit, content: ContentId) {
    unit.run(&NOTE_WORK, params![content]);
}

static NOTE_RAISED_FACTOR: LazyLock<String> = LazyLock::new(|| note_work_of("id = $1 AND factor > 1"));

/// The same after a reference was added. Content of factor 1, also of joined pieces, never needs another copy for
/// that.
pub(crate) fn note_raised_factor(unit: &mut Unit, content: ContentId) {
    unit.run(&NOTE_RAISED_FACTOR, params![content]);
}

/// If the backend was accepted after `$4`, the bytes were perhaps read from another store, and the copy does not count.
const CONFIRM: &str = "UPDATE object_locations SET state = 'present', \
     verified_at = CASE WHEN coalesce(verified_at, 0) < $4 THEN $4 ELSE verified_at END \
     WHERE content_id = $1 AND backend_name = $2 AND physical_key = $3 AND state <> 'lost'";

/// Adds the statement that makes a copy present and verified, because the caller began to read or probe it at `since`
/// or later.
pub(crate) fn confirm(unit: &mut Unit, content: ContentId, copy: &Location, since: Timestamp) {
    unit.run(CONFIRM, params![content, &copy.backend, copy.physical_key.as_str(), since.millis()]);
}

/// The same order as in the lookup of an object.
static READABLE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT l.backend_name, l.physical_key, l.backend_version, {TRUST} AS trust FROM object_locations l \
         WHERE l.content_id = $1 AND l.state <> 'lost' ORDER BY trust, l.backend_name"
    )
});

impl Catalog {
    /// The copies of a content that may be readable at this moment.
    pub async fn readable_copies(&self, content: ContentId) -> Result<Vec<ReadableCopy>, Error> {
        let rows = self.find(&READABLE, params![content], |rows| !rows.is_empty()).await?;
        rows.iter().filter_map(|row| readable_copy(row).transpose()).collect()
    }

    /// Records that a copy is good: a suspect one was read and has the right digest, a present one was probed. That
    /// began at `since`, by the clock of the catalog, or later.
    pub async fn confirm_copy(&self, content: ContentId, copy: &Location, since: Timestamp) -> Result<(), Error> {
        let mut unit = Unit::new("confirm_copy");
        unit.lock(LockRank::Content, "SELECT id FROM contents WHERE id = $1 /*lock*/", params![content]);
        confirm(&mut unit, content, copy, since);
        work::settle(&mut unit, content);
        self.write(unit).await.map(drop)
    }
}
