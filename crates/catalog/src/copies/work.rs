//! Contents whose number of copies differs from their factor, as a queue. A row leaves it only in a unit that counts
//! the copies again under the lock of the content.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::content::Location;
use s3o_model::etag::{Md5, Sha256};
use s3o_model::ids::{ContentId, InstanceId};
use s3o_model::names::BackendName;

use super::damaged::forget_damage;
use super::remove::ON_REMOVABLE;
use super::{COUNTS, UNPROVEN, counting_copies, has_copy, note_work, note_work_of, unproven_copies};
use crate::error::Error;
use crate::objects::location;
use crate::unit::{LockRank, Row, Unit, json};
use crate::{Catalog, params};

/// A content with too few or too many copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyWork {
    /// May be condemned since; see `is_gone`.
    pub content: ContentId,
    /// Length of the content, and of each copy.
    pub size_bytes: u64,
    /// Number of copies that it shall have.
    pub factor: usize,
    /// Digest of its bytes; `None` for joined content.
    pub md5: Option<Md5>,
    /// Digest of its bytes; `None` for joined content and for content of old versions.
    pub sha256: Option<Sha256>,
    /// Number of failed attempts.
    pub attempts: u32,
    /// True if its pieces must be compared instead of its own copies.
    pub is_joined: bool,
    /// True if the content was condemned or deleted since.
    pub is_gone: bool,
    /// When the row was read, by the clock of the catalog.
    pub read_at: Timestamp,
    /// Counts the changes that make postponed work due; of the moment when the row was read.
    pub epoch: i64,
    /// All of its copies, ordered by backend.
    pub copies: Vec<CountedLocation>,
}

/// One copy of a content.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each from a column of the answer")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedLocation {
    /// Backend and physical key.
    pub location: Location,
    /// True if the copy counts towards the factor.
    pub counts: bool,
    /// True if it does not count although its backend is in use: it is suspect, or was not found there since the
    /// backend was accepted.
    pub is_unproven: bool,
    /// False for a suspect or lost copy.
    pub is_present: bool,
    /// False while its backend is unhealthy, frozen, or another store was found there.
    pub is_removable: bool,
    /// When the copy was last read, probed or written.
    pub verified_at: Option<Timestamp>,
}

impl CopyWork {
    /// Number of copies that count.
    #[must_use]
    pub fn counting(&self) -> usize {
        self.copies.iter().filter(|copy| copy.counts).count()
    }
}

/// True for a row of `copy_work` that is due: its delay has ended, or a backend has become usable since.
const IS_DUE: &str = "(due <= :now OR epoch <> (SELECT copy_epoch.epoch FROM copy_epoch))";

/// The columns of a content `c` and of a copy `l` of it.
static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "c.kind, c.state AS content_state, c.size_bytes, c.factor, c.md5, c.sha256, \
         :now AS read_at, (SELECT copy_epoch.epoch FROM copy_epoch) AS epoch, \
         l.backend_name, l.physical_key, l.backend_version, l.state, l.verified_at, \
         CASE WHEN {COUNTS} THEN 1 ELSE 0 END AS counts, \
         CASE WHEN {UNPROVEN} THEN 1 ELSE 0 END AS unproven, CASE WHEN {} THEN 1 ELSE 0 END AS removable",
        *ON_REMOVABLE
    )
});

/// Work that is due at one moment.
#[derive(Debug, Clone, Default)]
pub struct DueCopies {
    /// In the order in which it is to be done.
    pub work: Vec<CopyWork>,
    /// True while a review is under way.
    pub is_reviewing: bool,
    /// True if the instance has left contents to the others.
    pub has_left_work: bool,
}

/// Work that is due, with all copies of each content, and the position of the review. There is always a first row. What
/// an instance could not reach is due for the others: for instance `$3` if it is another one.
static DUE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT r.position, CASE WHEN EXISTS (SELECT 1 FROM copy_work \
         WHERE unreachable_by = CAST($3 AS TEXT) AND due > :now) THEN 1 ELSE 0 END AS has_left, \
         w.content_id, w.attempts, {} FROM (SELECT 1 AS one) AS always \
         LEFT JOIN copy_review r ON r.only_row = always.one \
         LEFT JOIN (SELECT content_id, attempts, copies, created_at, 1 AS one FROM copy_work \
         WHERE excess = $2 AND ({IS_DUE} OR unreachable_by <> CAST($3 AS TEXT)) \
         ORDER BY copies, created_at LIMIT $1) w ON w.one = always.one \
         LEFT JOIN contents c ON c.id = w.content_id LEFT JOIN object_locations l ON l.content_id = w.content_id \
         AND l.state <> 'lost' \
         ORDER BY w.copies, w.created_at, w.content_id, l.backend_name",
        *COLUMNS
    )
});

/// Removes the row of content `$1` if its copies equal its factor by now and none is unproven, or if it is no longer
/// live.
static SETTLE: LazyLock<String> = LazyLock::new(|| {
    let (copies, unproven, has_copy) = (counting_copies("$1"), unproven_copies("$1"), has_copy("$1"));
    format!(
        "DELETE FROM copy_work WHERE content_id = $1 AND NOT EXISTS (SELECT 1 FROM contents c \
         WHERE c.id = $1 AND c.state = 'live' \
         AND (c.kind = 'joined' OR ((c.factor <> {copies} OR {unproven} > 0) AND {has_copy})))"
    )
});

/// Adds the statements that settle the work of a content that the unit has locked. If it has too few or too many copies
/// now, it is noted again.
pub(super) fn settle(unit: &mut Unit, content: ContentId) {
    forget_damage(unit, content);
    unit.run(&SETTLE, params![content]);
    note_work(unit, content);
}

fn copy_of(row: &Row) -> Result<Option<CountedLocation>, Error> {
    let Some(location) = location(row)? else { return Ok(None) };
    Ok(Some(CountedLocation {
        location,
        counts: row.int("counts")? == 1,
        is_unproven: row.int("unproven")? == 1,
        is_present: row.text("state")? == "present",
        is_removable: row.int("removable")? == 1,
        verified_at: row.opt_time("verified_at")?,
    }))
}

fn work_of(row: &Row) -> Result<CopyWork, Error> {
    let digest = |column| row.opt_text(column).map(|text| text.is_some());
    Ok(CopyWork {
        content: row.parse("content_id")?,
        size_bytes: row.opt_int("size_bytes")?.map_or(0, |size| u64::try_from(size).unwrap_or(0)),
        factor: row.opt_int("factor")?.map_or(1, |factor| usize::try_from(factor).unwrap_or(1)),
        md5: digest("md5")?.then(|| row.parse("md5")).transpose()?,
        sha256: digest("sha256")?.then(|| row.parse("sha256")).transpose()?,
        attempts: u32::try_from(row.int("attempts")?).unwrap_or(u32::MAX),
        is_joined: row.opt_text("kind")? == Some("joined"),
        is_gone: row.opt_text("content_state")? != Some("live"),
        read_at: row.time("read_at")?,
        epoch: row.int("epoch")?,
        copies: Vec::new(),
    })
}

/// Contents with a copy on backend `$1`, in the order of its keys after `$2`, with all copies of each.
static ON_BACKEND: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT w.content_id, 0 AS attempts, {} FROM (SELECT content_id, physical_key FROM object_locations \
         WHERE backend_name = $1 AND physical_key > $2 \
         AND state <> 'lost' ORDER BY physical_key LIMIT $3) w JOIN contents c ON c.id = w.content_id \
         JOIN object_locations l ON l.content_id = w.content_id AND l.state <> 'lost' \
         ORDER BY w.physical_key, l.backend_name",
        *COLUMNS
    )
});

/// One entry per content; the rows of one content are adjacent and differ in their copy.
fn gather(rows: &[Row]) -> Result<Vec<CopyWork>, Error> {
    let mut gathered: Vec<CopyWork> = Vec::new();
    for row in rows.iter().filter(|row| row.opt_text("content_id").is_ok_and(|id| id.is_some())) {
        let work = work_of(row)?;
        if gathered.last().is_none_or(|last| last.content != work.content) {
            gathered.push(work);
        }
        if let (Some(last), Some(copy)) = (gathered.last_mut(), copy_of(row)?) {
            last.copies.push(copy);
        }
    }
    Ok(gathered)
}

impl Catalog {
    /// Contents with a copy on this backend, in the order of its physical keys after `after`, at most `limit`.
    pub async fn contents_on(&self, name: &BackendName, after: &str, limit: usize) -> Result<Vec<CopyWork>, Error> {
        gather(&self.read(&ON_BACKEND, params![name, after, limit]).await?)
    }

    /// Contents with too few copies that are due, those with the fewest copies first, or contents with too many or with
    /// an unproven one besides enough others; at most `limit`. The second value is true while a review is under way.
    pub async fn due_copy_work(&self, excess: bool, limit: usize) -> Result<(Vec<CopyWork>, bool), Error> {
        let DueCopies { work, is_reviewing, .. } = self.due_copy_work_of(excess, limit, None).await?;
        Ok((work, is_reviewing))
    }

    /// The same with contents that other instances than this one could not reach.
    pub async fn due_copy_work_of(
        &self,
        excess: bool,
        limit: usize,
        instance: Option<InstanceId>,
    ) -> Result<DueCopies, Error> {
        let rows = self.read(&DUE, params![limit, i64::from(excess), instance]).await?;
        let is_reviewing = rows.first().map(|row| row.opt_text("position")).transpose()?.flatten().is_some();
        let has_left_work = rows.first().map(|row| row.int("has_left")).transpose()?.is_some_and(|left| left == 1);
        Ok(DueCopies { work: gather(&rows)?, is_reviewing, has_left_work })
    }

    /// Removes the work of a content that needs no copy any more; otherwise notes how many copies it has.
    pub async fn settle_copy_work(&self, content: ContentId) -> Result<(), Error> {
        let mut unit = Unit::new("settle_copy_work");
        unit.lock(LockRank::Content, "SELECT id FROM contents WHERE id = $1 /*lock*/", params![content]);
        settle(&mut unit, content);
        self.write(unit).await.map(drop)
    }

    /// Postpones the work of a content after a failed attempt; `false` if it has none. A backend that became usable
    /// since the work was read makes it due at once.
    pub async fn postpone_copy_work(&self, work: &CopyWork, delay: Duration, why: &str) -> Result<bool, Error> {
        let mut unit = Unit::new("postpone_copy_work");
        let postponed = unit.run(
            "UPDATE copy_work SET due = :now + $2, attempts = attempts + 1, last_error = $3, epoch = $4, \
             unreachable_by = NULL WHERE content_id = $1",
            params![work.content, millis_of(delay), why, work.epoch],
        );
        Ok(self.write(unit).await?[postponed].changed > 0)
    }

    /// Leaves contents to the other instances, because this one cannot reach them. It sees them again after `delay`, or
    /// once a backend becomes usable. Their backoff stays.
    pub async fn leave_copy_work(&self, left: &[CopyWork], instance: InstanceId, delay: Duration) -> Result<(), Error> {
        let Some(first) = left.first() else { return Ok(()) };
        let ids: Vec<ContentId> = left.iter().map(|work| work.content).collect();
        let mut unit = Unit::new("leave_copy_work");
        unit.run(
            "UPDATE copy_work SET due = :now + $2, epoch = $3, unreachable_by = $4 WHERE content_id IN TEXTS($1)",
            params![json(&ids), millis_of(delay), first.epoch, instance],
        );
        self.write(unit).await.map(drop)
    }

    /// Raises the factor of up to `limit` pieces of joined content to its own, and notes them as work. When no piece is
    /// left, removes the work of the joined content and returns `false`.
    pub async fn expand_copy_work(&self, joined: ContentId, limit: usize) -> Result<bool, Error> {
        const LOWER: &str = "SELECT DISTINCT p.whole_id FROM content_parts p JOIN contents w ON w.id = p.whole_id \
             JOIN contents j ON j.id = p.joined_id WHERE p.joined_id = $1 AND w.factor < j.factor LIMIT $2";
        static NOTE: LazyLock<String> = LazyLock::new(|| note_work_of("id IN TEXTS($1)"));
        let lower = self.read(LOWER, params![joined, limit]).await?;
        let ids = lower.iter().map(|row| row.parse("whole_id")).collect::<Result<Vec<ContentId>, _>>()?;
        let list = json(&ids);
        let mut unit = Unit::new("expand_copy_work");
        unit.lock(
            LockRank::Content,
            "SELECT id FROM contents WHERE id = $1 OR id IN TEXTS($2) ORDER BY id /*lock*/",
            params![joined, &list],
        );
        unit.run(
            "UPDATE contents SET factor = s.f FROM (SELECT factor AS f FROM contents WHERE id = $1) s \
             WHERE id IN TEXTS($2) AND factor < s.f",
            params![joined, &list],
        );
        unit.run(&NOTE, params![&list]);
        if ids.is_empty() {
            // Counted again: the factor may have been raised since the pieces were read.
            unit.run(
                "DELETE FROM copy_work WHERE content_id = $1 AND NOT EXISTS (SELECT 1 FROM content_parts p \
                 JOIN contents w ON w.id = p.whole_id JOIN contents j ON j.id = p.joined_id \
                 WHERE p.joined_id = $1 AND w.factor < j.factor)",
                params![joined],
            );
        }
        self.write(unit).await?;
        Ok(!ids.is_empty())
    }

    /// Number of contents whose work is due, counted up to `max`. Postponed work does not keep a review from going on.
    pub(super) async fn due_depth(&self, max: u64) -> Result<u64, Error> {
        static DEPTH: LazyLock<String> = LazyLock::new(|| {
            format!("SELECT count(*) AS n FROM (SELECT 1 FROM copy_work WHERE {IS_DUE} LIMIT $1) AS waiting")
        });
        self.survey(&DEPTH, params![max]).await?[0].size("n")
    }
}
