//! The catalog of buckets, objects, contents, intents and cleanups.
//!
//! A method of [`Catalog`] is one named transaction or read, in a file by topic. A transaction is a unit of work that
//! a driver runs atomically. No transaction handle leaves this crate, no SQL is written outside it, and it calls no
//! backend.

mod ahead;
mod audits;
mod backend_states;
mod backend_views;
mod buckets;
mod check;
mod cleanups;
mod clock_notes;
mod commits;
mod condemned;
mod condition;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod contents;
mod copies;
mod credentials;
mod dead_letters;
pub mod driver;
mod error;
mod findings;
mod identities;
mod identity_records;
mod intents;
mod lifecycles;
mod locks;
mod low_water;
mod migrations;
mod objects;
mod overview;
mod quotas;
mod reconcile;
mod release;
mod runs;
mod sharing;
#[cfg(test)]
mod sql_mutations;
mod stored_bytes;
pub mod unit;
mod uploads;
mod usage;
mod verification;
mod write_offs;

use std::sync::Arc;

pub use ahead::Longest;
pub use audits::{AuditedStripe, CondemnedPlace, Confirmed, CountPage, Recounted};
pub use backend_states::{BackendHoldings, SharedBackendState};
pub use backend_views::UnhealthyRule;
pub use cleanups::unnamed::{UNNAMED_UNIT_MAX, UNNAMED_WAITING_MAX, UnnamedKey};
pub use cleanups::waiting::{Ages, Waiting};
pub use cleanups::{ClaimedCleanups, Depths, FreedClaim, QueuedCleanup, Settlement};
pub use commits::ContentPlan;
pub use condemned::CondemnedObserver;
pub use condition::{Condition, Integrity};
pub use copies::{
    CopyWork, CountedLocation, DueCopies, LocatedContent, RemoveCopy, ReplacedCopy, Replica, ReplicaSource,
    StageReplica, WrittenDigests,
};
pub use dead_letters::Discard;
#[cfg(any(test, feature = "conformance"))]
pub use driver::DriverLayer;
pub use driver::postgres::{InvalidPostgresUrl, Postgres, PostgresOptions, check_url};
pub use driver::sqlite::copies::restore as restore_sqlite;
pub use driver::sqlite::{Mode, Sqlite, SqliteOptions, check_sqlite};
pub use driver::{Driver, Effort};
pub use error::{Error, Verdict};
pub use findings::{Finding, FindingSelection};
pub use identities::{Acceptance, KnownBackend, MARK_LEASE, PlannedMark};
pub use identity_records::IdentityRecord;
pub use intents::{Dropped, Ended, FailedCopy, Late, Pin, Stage};
pub use lifecycles::{Authority, DueBatch, DueObject, DuePage, DueRange, DueUpload, RuledBucket};
pub use locks::postgres::PostgresLocks;
pub use locks::{Lock, Locked, Locks, ProcessLocks};
pub use objects::{
    CommitPut, Committed, ExpiredObject, Numbered, ObjectToDelete, PutRow, Resolved, StuckObject, WholeContent,
};
pub use overview::{BucketCount, OldestDue};
pub use reconcile::{
    ActionPage, Decision, DecisionRefused, FolderCount, PassPage, PassState, ReconcilePass, StagedFinding,
    StandingFinding,
};
pub use runs::{RunRow, WorkerState};
pub use sharing::KnownContent;
pub use stored_bytes::{StoredBytes, Unannounced};
pub use uploads::{CommitPart, CompleteRow, PartSource, StaleUpload};
pub use usage::{MonthReading, ProcessRow, UsageAllotment};
pub use verification::{Check, Cursor, Pulse, checks, lost_contents};
pub use write_offs::WriteOffTotal;

/// The catalog on one driver. Clones share its state.
#[derive(Clone)]
pub struct Catalog {
    driver: Arc<dyn Driver>,
    low_waters: low_water::LowWaters,
    condemned: condemned::ObserverSlot,
    condition: Condition,
}

impl Catalog {
    /// A catalog on an open driver.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self {
            condition: driver.condition(),
            driver,
            low_waters: low_water::LowWaters::default(),
            condemned: condemned::ObserverSlot::default(),
        }
    }

    /// Counters of the driver since it was opened.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.driver.effort()
    }
}

impl Catalog {
    /// Integrity of this catalog.
    #[must_use]
    pub fn condition(&self) -> &Condition {
        &self.condition
    }
}

/// All reads and writes pass here, so that the restrictions of a damaged catalog are in one place: it returns rows that
/// it finds, never an absence or a list.
impl Catalog {
    /// Reads rows whose absence or number matters; fails if the catalog is damaged.
    async fn read(&self, sql: &'static str, params: Vec<unit::Value>) -> Result<Vec<unit::Row>, Error> {
        self.find(sql, params, |_| false).await
    }

    /// Reads rows that are valid on their own; fails if the catalog is damaged and `is_found` is false.
    async fn find(
        &self,
        sql: &'static str,
        params: Vec<unit::Value>,
        is_found: impl FnOnce(&[unit::Row]) -> bool,
    ) -> Result<Vec<unit::Row>, Error> {
        let rows = self.survey(sql, params).await?;
        if !is_found(&rows) {
            self.condition.demand_undamaged()?;
        }
        Ok(rows)
    }

    /// Reads rows for display to operators; in a damaged catalog they may be incomplete.
    async fn survey(&self, sql: &'static str, params: Vec<unit::Value>) -> Result<Vec<unit::Row>, Error> {
        self.driver.read(unit::Statement::new(sql, params)).await
    }

    async fn scan(&self, sql: &'static str, params: Vec<unit::Value>) -> Result<Vec<unit::Row>, Error> {
        self.driver.scan(unit::Statement::new(sql, params)).await
    }

    async fn write(&self, unit: unit::Unit) -> Result<Vec<unit::Answer>, Error> {
        self.condition.demand_undamaged()?;
        let notice = self.condemned.notice_of(&unit);
        let name = unit.name;
        let answers = self.driver.write(unit).await.map_err(|error| self.judge(name, error))?;
        if let Some(notice) = notice {
            notice.send(&answers);
        }
        Ok(answers)
    }

    /// Marks the catalog as damaged if a unit found that.
    fn judge(&self, unit: &'static str, error: Error) -> Error {
        if error.verdict() != Some(Verdict::Damaged) {
            return error;
        }
        let why = format!("{unit}: an index disagrees with its table");
        self.condition.damage(&why);
        Error::Corrupt(why)
    }
}
