//! Passes of reconcile: rows that survive restarts, so that any instance continues where another one stopped.
//!
//! A pass is open while its backend is listed. Its findings are kept apart until it is valid; then they replace those
//! of the pass before, in bounded steps, and what is confirmed is acted on.

mod actions;
mod decisions;
mod fold;
mod pages;

use std::sync::LazyLock;

use s3o_model::clock::Timestamp;
use s3o_model::ids::InstanceId;
use s3o_model::names::BackendName;
use s3o_model::reconcile::PassCounts;

use crate::copies::disputed;
use crate::error::{Error, Verdict};
use crate::unit::{Row, Unit};
use crate::{Catalog, params};

pub use actions::{ActionPage, StandingFinding};
pub(crate) use decisions::discard_passes;
pub use decisions::{Decision, DecisionRefused};
pub use pages::{FolderCount, PassPage, StagedFinding};

/// Ended passes that are kept of each backend, to show them.
const KEPT: usize = 10;

/// What a pass is doing, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassState {
    /// The backend is being listed.
    Open,
    /// The pass is valid, and its findings replace those of the pass before.
    Folding,
    /// What was confirmed is acted on.
    Acting,
    /// Everything that can be acted on was.
    Done,
    /// The listing could not be relied on; the findings were dropped.
    Invalid,
    /// An operator stopped it.
    Cancelled,
    /// The backend was accepted or removed since.
    Discarded,
}

impl PassState {
    /// All of them, in the order of a pass.
    const ALL: [Self; 7] =
        [Self::Open, Self::Folding, Self::Acting, Self::Done, Self::Invalid, Self::Cancelled, Self::Discarded];

    /// Value in the catalog and in the admin API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Folding => "folding",
            Self::Acting => "acting",
            Self::Done => "done",
            Self::Invalid => "invalid",
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
        }
    }

    /// True until every page was stored and every finding took its place.
    #[must_use]
    pub const fn is_unfinished(self) -> bool {
        matches!(self, Self::Open | Self::Folding)
    }

    /// True if its findings count.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        matches!(self, Self::Acting | Self::Done)
    }
}

/// A pass over one backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcilePass {
    /// Grows with every pass.
    pub id: i64,
    /// The backend that is listed.
    pub backend: BackendName,
    /// What it is doing, or how it ended.
    pub state: PassState,
    /// How far it is; the meaning depends on the state.
    pub position: String,
    /// What it counted so far.
    pub counts: PassCounts,
    /// The catalog's clock before the first listing.
    pub cut_off: Timestamp,
    /// Why an operator must approve what it found.
    pub held: Option<String>,
    /// The instance that stored the last page.
    pub instance: String,
    /// Number of failed attempts since the last page.
    pub failures: u64,
    /// Why it is not valid.
    pub reason: Option<String>,
    /// When the last page was stored.
    pub updated_at: Timestamp,
    /// By the catalog's clock; `None` while the pass goes on.
    pub ended_at: Option<Timestamp>,
    /// The catalog's clock when the row was read.
    pub read_at: Timestamp,
}

const COLUMNS: &str = "id, backend_name, state, position, counts, cut_off, held_reason, instance, failures, reason, \
     updated_at, ended_at, :now AS now";

fn pass(row: &Row) -> Result<ReconcilePass, Error> {
    let state = row.text("state")?;
    let known = PassState::ALL.into_iter().find(|known| known.as_str() == state);
    Ok(ReconcilePass {
        id: row.int("id")?,
        backend: row.parse("backend_name")?,
        state: known.ok_or_else(|| Error::Corrupt(format!("unknown state of a pass {state:?}")))?,
        position: row.string("position")?,
        counts: row.json("counts")?,
        cut_off: row.time("cut_off")?,
        held: row.opt_string("held_reason")?,
        instance: row.string("instance")?,
        failures: row.size("failures")?,
        reason: row.opt_string("reason")?,
        updated_at: row.time("updated_at")?,
        ended_at: row.opt_time("ended_at")?,
        read_at: row.time("now")?,
    })
}

/// Starts a pass of backend `$1` unless one is unfinished, or the backend is unknown or being removed.
const BEGIN: &str = "INSERT INTO reconcile_passes \
     (backend_name, state, position, counts, cut_off, instance, updated_at) \
     SELECT name, 'open', CAST($2 AS TEXT), '{}', :now, CAST($3 AS TEXT), :now FROM backends \
     WHERE name = $1 AND removing_since IS NULL AND NOT EXISTS (SELECT 1 FROM reconcile_passes p \
     WHERE p.backend_name = $1 AND p.state IN ('open', 'folding')) ON CONFLICT DO NOTHING";

const END_EARLIER: &str = "UPDATE reconcile_passes SET state = 'done', ended_at = :now \
     WHERE backend_name = $1 AND state = 'acting'";

const FORGET: &str = "DELETE FROM reconcile_passes WHERE backend_name = $1 AND id < \
     (SELECT min(id) FROM (SELECT id FROM reconcile_passes WHERE backend_name = $1 ORDER BY id DESC LIMIT $2) AS kept)";

const END_OPEN: &str = "UPDATE reconcile_passes SET state = $3, reason = $4, ended_at = :now, updated_at = :now \
     WHERE id = $1 AND position = $2 AND state = 'open'";

impl Catalog {
    /// The newest pass of every backend that had one, by backend.
    pub async fn reconcile_passes(&self) -> Result<Vec<ReconcilePass>, Error> {
        static NEWEST: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT {COLUMNS} FROM reconcile_passes WHERE id IN \
                 (SELECT max(id) FROM reconcile_passes GROUP BY backend_name) ORDER BY backend_name"
            )
        });
        self.survey(&NEWEST, vec![]).await?.iter().map(pass).collect()
    }

    /// The newest pass of a backend.
    pub async fn reconcile_pass(&self, backend: &BackendName) -> Result<Option<ReconcilePass>, Error> {
        static OF_ONE: LazyLock<String> = LazyLock::new(|| {
            format!("SELECT {COLUMNS} FROM reconcile_passes WHERE backend_name = $1 ORDER BY id DESC LIMIT 1")
        });
        self.survey(&OF_ONE, params![backend]).await?.first().map(pass).transpose()
    }

    /// Starts a pass. False if one of this backend is unfinished, or the backend is being removed.
    pub async fn begin_pass(&self, backend: &BackendName, position: &str, by: InstanceId) -> Result<bool, Error> {
        let mut unit = Unit::new("begin_pass");
        unit.run(END_EARLIER, params![backend]);
        unit.one(BEGIN, params![backend, position, by], Verdict::NotNeeded);
        unit.run(FORGET, params![backend, KEPT]);
        match self.write(unit).await {
            Ok(_) => Ok(true),
            Err(Error::Guard(Verdict::NotNeeded)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a pass valid whose last page was stored. Fails as `RunAgain` if another instance continued or ended it, or
    /// an instance finds another store at the backend.
    pub async fn close_pass(&self, pass: &ReconcilePass, held: Option<&str>) -> Result<(), Error> {
        static CLOSE: LazyLock<String> = LazyLock::new(|| {
            let disputed = disputed("reconcile_passes.backend_name");
            format!(
                "UPDATE reconcile_passes SET state = 'folding', held_reason = $3, updated_at = :now, failures = 0 \
                 WHERE id = $1 AND position = $2 AND state = 'open' AND NOT {disputed}"
            )
        });
        let mut unit = Unit::new("close_pass");
        unit.one(&CLOSE, params![pass.id, &pass.position, held], Verdict::RunAgain);
        self.write(unit).await.map(drop)
    }

    /// Ends an open pass as invalid. False if another instance continued or ended it.
    pub async fn invalidate_pass(&self, pass: &ReconcilePass, reason: &str) -> Result<bool, Error> {
        let mut unit = Unit::new("invalidate_pass");
        let ended = PassState::Invalid.as_str();
        let answer = unit.run(END_OPEN, params![pass.id, &pass.position, ended, reason]);
        Ok(self.write(unit).await?[answer].changed > 0)
    }

    /// Stops an open pass, and what a valid one still has to act on. False if the backend has none of these.
    pub async fn cancel_pass(&self, backend: &BackendName) -> Result<bool, Error> {
        let mut unit = Unit::new("cancel_pass");
        let cancelled = unit.run(
            "UPDATE reconcile_passes SET state = CASE state WHEN 'open' THEN 'cancelled' ELSE 'done' END, \
             reason = 'cancelled by an operator', ended_at = :now, updated_at = :now \
             WHERE backend_name = $1 AND state IN ('open', 'acting')",
            params![backend],
        );
        Ok(self.write(unit).await?[cancelled].changed > 0)
    }

    /// Counts a failed attempt to continue an open pass.
    pub async fn note_pass_failure(&self, pass: &ReconcilePass, why: &str) -> Result<(), Error> {
        let mut unit = Unit::new("note_pass_failure");
        unit.run(
            "UPDATE reconcile_passes SET failures = failures + 1, reason = $3 \
             WHERE id = $1 AND position = $2 AND state = 'open'",
            params![pass.id, &pass.position, why],
        );
        self.write(unit).await.map(drop)
    }

    /// The catalog's clock.
    pub async fn present_time(&self) -> Result<Timestamp, Error> {
        self.survey("SELECT :now AS now", vec![]).await?[0].time("now")
    }

    /// When an operator last accepted a backend.
    pub async fn accepted_at(&self, backend: &BackendName) -> Result<Option<Timestamp>, Error> {
        const ACCEPTED: &str = "SELECT accepted_at FROM backends WHERE name = $1";
        let rows = self.read(ACCEPTED, params![backend]).await?;
        rows.first().map_or(Ok(None), |row| row.opt_time("accepted_at"))
    }
}
