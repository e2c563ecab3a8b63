//! What we know: the catalog of buckets, objects, contents, intents and cleanups.
//!
//! A method of a role is one whole, named transaction. Underneath it is a unit of work that a
//! small driver runs atomically; no transaction handle leaves this room, and no SQL lives outside
//! it.

mod ahead;
mod audits;
mod buckets;
mod check;
mod cleanups;
mod clock_notes;
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
mod landed;
mod lifecycles;
mod locks;
mod low_water;
mod migrations;
mod objects;
mod overview;
mod quotas;
mod release;
mod runs;
#[cfg(test)]
mod sabotage;
mod sharing;
pub mod unit;
mod uploads;
mod verification;

use std::sync::Arc;

pub use ahead::{Ahead, Longest};
pub use audits::{Audits, Booked, CondemnedPlace, Confirmed, CountPage, Recounted};
pub use buckets::Buckets;
pub use cleanups::look::{Ages, Waiting};
pub use cleanups::{ClaimedCleanups, Cleanups, Depths, FreedClaim, QueuedCleanup, Settlement};
pub use clock_notes::ClockNotes;
pub use condemned::CondemnedObserver;
pub use condition::{Condition, Integrity};
pub use contents::Contents;
pub use copies::{Copies, CopyProver};
pub use credentials::SharedCredentials;
pub use dead_letters::{DeadLetters, Discard};
#[cfg(any(test, feature = "conformance"))]
pub use driver::DriverLayer;
pub use driver::postgres::{InvalidUrl, Postgres, PostgresOptions, check_url};
pub use driver::sqlite::copies::restore as restore_sqlite;
pub use driver::sqlite::{Mode, Sqlite, SqliteOptions, check_sqlite};
pub use driver::{Driver, Effort};
pub use error::{Error, Verdict};
pub use findings::{Finding, FindingSelection, Findings};
pub use identities::{Acceptance, Identities, KnownBackend, PlannedMark};
pub use identity_records::{IdentityRecord, IdentityRecords};
pub use intents::{Dropped, Ended, Intents, Late, Pin, Pinned, Stage};
pub use landed::{Landed, Unannounced};
pub use lifecycles::{Authority, DueBatch, DueObject, DuePage, DueRange, DueUpload, Lifecycles, RuledBucket};
pub use locks::postgres::PostgresLocks;
pub use locks::{Lock, Locked, Locks, ProcessLocks};
pub use objects::{
    CommitPut, Committed, ExpiredObject, Expiries, Numbered, Objects, PutRow, Resolved, StuckObject, StuckObjects,
    WholeContent,
};
pub use overview::{BucketCount, OldestDue, Overview};
pub use quotas::Quotas;
pub use runs::{RunRow, Runs, WorkerState};
pub use uploads::{CommitPart, CompleteRow, PartSource, StaleUpload, StaleUploads, Uploads};
pub use verification::{Check, Cursor, Pulse, Verification, checks};

/// The catalog: all roles over one driver.
#[derive(Clone)]
pub struct Catalog {
    driver: Arc<dyn Driver>,
    low_waters: low_water::LowWaters,
    condemned: condemned::Listener,
    eyes: copies::Eyes,
    condition: Condition,
}

impl Catalog {
    /// A catalog over this driver.
    #[must_use]
    pub fn new(driver: Arc<dyn Driver>) -> Self {
        Self {
            condition: driver.condition(),
            driver,
            low_waters: low_water::LowWaters::default(),
            condemned: condemned::Listener::default(),
            eyes: copies::Eyes::default(),
        }
    }

    /// What the driver has done so far.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.driver.effort()
    }
}

impl Catalog {
    /// Whether this catalog can be trusted.
    #[must_use]
    pub fn condition(&self) -> &Condition {
        &self.condition
    }
}

/// Everything that is read or written passes here, so that a damaged catalog is refused in one place: it answers with
/// rows that it finds, never with an absence or a list.
impl Catalog {
    /// Reads what an absence or a list may follow from.
    async fn read(&self, sql: &'static str, params: Vec<unit::Value>) -> Result<Vec<unit::Row>, Error> {
        self.find(sql, params, |_| false).await
    }

    /// Reads rows that answer by themselves, if they are found.
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

    /// Reads what is shown to operators: it may be incomplete in a damaged catalog, and nothing follows from it.
    async fn survey(&self, sql: &'static str, params: Vec<unit::Value>) -> Result<Vec<unit::Row>, Error> {
        self.driver.read(unit::Statement::new(sql, params)).await
    }

    async fn scan(&self, sql: &'static str, params: Vec<unit::Value>) -> Result<Vec<unit::Row>, Error> {
        self.driver.scan(unit::Statement::new(sql, params)).await
    }

    async fn write(&self, unit: unit::Unit) -> Result<Vec<unit::Answer>, Error> {
        self.condition.demand_undamaged()?;
        let ears = self.condemned.of(&unit);
        let name = unit.name;
        let answers = self.driver.write(unit).await.map_err(|error| self.judge(name, error))?;
        if let Some(ears) = ears {
            ears.hear(&answers);
        }
        Ok(answers)
    }

    /// Notes what a unit found out about the catalog.
    fn judge(&self, unit: &'static str, error: Error) -> Error {
        if error.verdict() != Some(Verdict::Damaged) {
            return error;
        }
        let why = format!("{unit}: an index leads to rows that are not what it says");
        self.condition.damage(&why);
        Error::Corrupt(why)
    }
}
