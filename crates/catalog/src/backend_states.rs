//! States of backends that all instances share: draining, unhealthy, being removed, removed.
//!
//! A change is announced in a row of its own before the row of the backend is locked. Writers read the announcement
//! without a lock and leave the backend alone; otherwise the change would wait behind their shared locks.

use std::sync::LazyLock;
use std::time::Duration;

use s3o_model::clock::{Timestamp, millis_of};
use s3o_model::names::BackendName;

use crate::backend_views::summary_of_views;
use crate::copies::start_review;
use crate::error::{Error, Verdict};
use crate::reconcile::discard_passes;
use crate::unit::{LockRank, Row, Unit, json};
use crate::{Catalog, params};

/// How long an announcement holds if its author dies before the change.
const ANNOUNCED_FOR: Duration = Duration::from_secs(30);

/// What all instances know of one backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedBackendState {
    /// As in the configuration under which it was attached.
    pub name: BackendName,
    /// When its drain began; `None` if it is not draining.
    pub draining_since: Option<Timestamp>,
    /// True if an operator removed it, or is removing it; a configuration that still names it is ignored.
    pub removed: bool,
    /// True if an instance recorded another store there, and no operator dismissed that.
    pub disputed: bool,
    /// Since when its copies do not count because no instance can use it.
    pub unhealthy_since: Option<Timestamp>,
    /// Number of instances that answered lately that they can use it.
    pub usable_views: u64,
    /// Number of instances that answered lately that they cannot.
    pub failing_views: u64,
    /// The shortest time for which one of these could not use it.
    pub failing_for: Option<Duration>,
}

/// What a backend still holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackendHoldings {
    /// Copies of content.
    pub locations: u64,
    /// Bytes of these copies.
    pub bytes: u64,
    /// Writes under way.
    pub intents: u64,
    /// Queued deletes.
    pub cleanups: u64,
    /// Deletes that the backend refused too often.
    pub dead_letters: u64,
}

impl BackendHoldings {
    /// True if no row names bytes on the backend.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.locations == 0 && self.intents == 0 && self.cleanups == 0 && self.dead_letters == 0
    }
}

fn state(row: &Row) -> Result<SharedBackendState, Error> {
    let draining = row.int("draining")? == 1;
    let since = row.opt_time("draining_since")?.unwrap_or(Timestamp::from_millis(0));
    let failing_ms = row.opt_int("failing_ms")?.map(|millis| u64::try_from(millis).unwrap_or(0));
    Ok(SharedBackendState {
        name: row.parse("name")?,
        draining_since: draining.then_some(since),
        removed: row.opt_int("removing_since")?.is_some(),
        disputed: row.int("disputed")? == 1,
        unhealthy_since: row.opt_time("unhealthy_since")?,
        usable_views: row.size("usable_views")?,
        failing_views: row.size("failing_views")?,
        failing_for: failing_ms.map(Duration::from_millis),
    })
}

const HOLDINGS: &str = "SELECT (SELECT count(*) FROM object_locations WHERE backend_name = $1 AND state <> 'lost') \
     AS locations, \
     (SELECT CAST(coalesce(sum(size_bytes), 0) AS BIGINT) FROM object_locations WHERE backend_name = $1) AS bytes, \
     (SELECT count(*) FROM pending_objects WHERE backend_name = $1) AS intents, \
     (SELECT count(*) FROM cleanup_queue WHERE backend_name = $1) AS cleanups, \
     (SELECT count(*) FROM cleanup_dlq WHERE backend_name = $1) AS dead_letters";

/// Returns a row if the backends in `$2` that stay are as many as the highest factor.
const ENOUGH_REMAIN: &str = "SELECT 1 WHERE (SELECT count(*) FROM backends WHERE name IN TEXTS($2) AND name <> $1 \
     AND draining = 0 AND removing_since IS NULL AND removed_at IS NULL) >= \
     (SELECT coalesce(max(factor), 1) FROM (SELECT factor FROM buckets UNION ALL SELECT factor FROM cluster) AS every)";

const LOCK: &str = "SELECT name FROM backends WHERE name = $1 /*lock*/";

/// The same for a backend that is not being removed.
const LOCK_IN_USE: &str = "SELECT name FROM backends WHERE name = $1 AND removing_since IS NULL /*lock*/";

/// Returns a row if no row names bytes on backend `$1`.
const IF_EMPTY: &str = "SELECT name FROM backends WHERE name = $1 \
     AND NOT EXISTS (SELECT 1 FROM object_locations WHERE backend_name = $1 AND state <> 'lost') \
     AND NOT EXISTS (SELECT 1 FROM pending_objects WHERE backend_name = $1) \
     AND NOT EXISTS (SELECT 1 FROM cleanup_queue WHERE backend_name = $1) \
     AND NOT EXISTS (SELECT 1 FROM cleanup_dlq WHERE backend_name = $1)";

impl Catalog {
    /// States of all backends that were ever attached, by name.
    pub async fn backend_states(&self) -> Result<Vec<SharedBackendState>, Error> {
        static STATES: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT name, draining, draining_since, removing_since, unhealthy_since, {}, \
                 CASE WHEN EXISTS (SELECT 1 FROM identity_records WHERE backend_name = name AND reason IS NOT NULL \
                 AND coalesce(dismissed_hash, '') <> hash AND lease_until > :now) THEN 1 ELSE 0 END AS disputed \
                 FROM backends ORDER BY name",
                summary_of_views()
            )
        });
        self.survey(&STATES, vec![]).await?.iter().map(state).collect()
    }

    /// Names of draining backends.
    pub async fn draining_backends(&self) -> Result<Vec<BackendName>, Error> {
        const DRAINING: &str = "SELECT name FROM backends WHERE draining = 1 AND removed_at IS NULL ORDER BY name";
        self.read(DRAINING, vec![]).await?.iter().map(|row| row.parse("name")).collect()
    }

    /// Starts to drain a backend: no instance writes there any more, and its copies no longer count. Fails as
    /// `PreconditionFailed` if fewer of the `configured` backends remain than the highest factor, `Closed` if it is
    /// being removed.
    pub async fn start_drain(&self, name: &BackendName, configured: &[BackendName]) -> Result<(), Error> {
        self.announce_change(name).await?;
        let mut unit = Unit::new("start_drain");
        // One at a time: two drains that do not see each other could leave too few backends.
        unit.lock(LockRank::Bucket, "SELECT only_row FROM cluster /*lock*/", vec![]);
        unit.at(LockRank::Backend).one(LOCK_IN_USE, params![name], Verdict::Closed);
        unit.one(ENOUGH_REMAIN, params![name, json(&configured)], Verdict::PreconditionFailed);
        unit.run(
            "UPDATE backends SET draining = 1, draining_since = :now WHERE name = $1 AND draining = 0",
            params![name],
        );
        self.change_backend(name, unit).await
    }

    /// Stops a drain: the backend takes writes again, and its copies count. Fails as `Closed` if it is being removed.
    pub async fn stop_drain(&self, name: &BackendName) -> Result<(), Error> {
        // Not announced: writers avoid a draining backend already.
        let mut unit = Unit::new("stop_drain");
        unit.at(LockRank::Backend).one(LOCK_IN_USE, params![name], Verdict::Closed);
        unit.run("UPDATE backends SET draining = 0, draining_since = NULL WHERE name = $1", params![name]);
        self.change_backend(name, unit).await
    }

    /// What a backend holds, in one snapshot.
    pub async fn backend_holdings(&self, name: &BackendName) -> Result<BackendHoldings, Error> {
        let rows = self.read(HOLDINGS, params![name]).await?;
        let row = &rows[0];
        Ok(BackendHoldings {
            locations: row.size("locations")?,
            bytes: row.size("bytes")?,
            intents: row.size("intents")?,
            cleanups: row.size("cleanups")?,
            dead_letters: row.size("dead_letters")?,
        })
    }

    /// Begins to remove a backend that holds nothing: from now on, no instance writes there or plans a mark. One that
    /// planned a mark before may still write it; see `is_mark_planned`. Fails as `NotEmpty` if a row names bytes there.
    pub async fn begin_removal(&self, name: &BackendName) -> Result<(), Error> {
        self.announce_change(name).await?;
        let mut unit = Unit::new("begin_removal");
        // Locked, then counted: an intent that was staged before is seen, and none is staged later.
        unit.at(LockRank::Backend).one(LOCK, params![name], Verdict::NoSuchObject);
        unit.one(IF_EMPTY, params![name], Verdict::NotEmpty);
        unit.run("UPDATE backends SET removing_since = coalesce(removing_since, :now) WHERE name = $1", params![name]);
        self.change_backend(name, unit).await
    }

    /// Ends the removal of a backend whose own objects were deleted from the store. Fails as `NotEmpty` if a row names
    /// bytes there: a write without an intent may have ended since.
    pub async fn finish_removal(&self, name: &BackendName) -> Result<(), Error> {
        let mut unit = Unit::new("finish_removal");
        unit.at(LockRank::Backend).one(LOCK, params![name], Verdict::NoSuchObject);
        unit.one(IF_EMPTY, params![name], Verdict::NotEmpty);
        unit.one(
            "UPDATE backends SET removed_at = :now, draining = 0, draining_since = NULL, unhealthy_since = NULL, \
             mark = NULL, next_mark = NULL, mark_planned_until = NULL, mark_sequence = 0, next_sequence = 0, \
             past_marks = '[]' \
             WHERE name = $1 AND removing_since IS NOT NULL",
            params![name],
            Verdict::RunAgain,
        );
        unit.run("DELETE FROM identity_records WHERE backend_name = $1", params![name]);
        unit.run("DELETE FROM backend_views WHERE backend_name = $1", params![name]);
        discard_passes(&mut unit, name);
        self.write(unit).await.map(drop)
    }

    pub(crate) async fn announce_change(&self, name: &BackendName) -> Result<(), Error> {
        let mut unit = Unit::new("announce_change");
        unit.run(
            "INSERT INTO backend_changes (backend_name, until) VALUES ($1, :now + $2) \
             ON CONFLICT (backend_name) DO UPDATE SET until = excluded.until",
            params![name, millis_of(ANNOUNCED_FOR)],
        );
        self.write(unit).await.map(drop)
    }

    /// Runs a change, ends its announcement if there is one, and starts a review: other copies count now.
    pub(crate) async fn change_backend(&self, name: &BackendName, mut unit: Unit) -> Result<(), Error> {
        unit.run("DELETE FROM backend_changes WHERE backend_name = $1", params![name]);
        start_review(&mut unit);
        let changed = self.write(unit).await;
        if changed.is_err() {
            let mut withdraw = Unit::new("withdraw_change");
            withdraw.run("DELETE FROM backend_changes WHERE backend_name = $1", params![name]);
            self.write(withdraw).await?;
        }
        changed.map(drop)
    }
}
