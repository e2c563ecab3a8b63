//! Drivers: one for each supported database.

pub(crate) mod dialect;
#[cfg(any(test, feature = "conformance"))]
mod layer;
pub mod postgres;
pub mod sqlite;

use async_trait::async_trait;
#[cfg(any(test, feature = "conformance"))]
pub use layer::DriverLayer;

use crate::condition::Condition;
use crate::error::Error;
use crate::unit::{Answer, Row, Statement, Unit};

/// Counters of a driver since it was opened, for metrics and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Units that were run, committed or not.
    pub units: u64,
    /// Committed transactions; SQLite commits several units in one.
    pub commits: u64,
    /// Rows that queries outside of units returned.
    pub rows_read: u64,
}

/// Runs units and queries on one database.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Runs a unit atomically and durably. Dropping the future leaves all of the unit committed or nothing of it.
    async fn write(&self, unit: Unit) -> Result<Vec<Answer>, Error>;

    /// Runs a query outside any transaction.
    async fn read(&self, query: Statement) -> Result<Vec<Row>, Error>;

    /// Runs a query that reads much of a table: it may take long, and blocks no other query.
    async fn scan(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.read(query).await
    }

    /// Runs two queries on one snapshot. The second one reads tables without their indexes.
    async fn read_both_ways(&self, query: Statement, by_table: Statement) -> Result<(Vec<Row>, Vec<Row>), Error>;

    /// Runs the database's own integrity check while other work goes on, and returns the faults that it found. Fails
    /// if the check is not installed.
    async fn check_integrity(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Writes a complete copy to a file that must not exist, while other work goes on. Returns its size in bytes.
    async fn backup(&self, _to: &std::path::Path) -> Result<u64, Error> {
        Err(Error::Internal("this database is backed up with its own tools".to_owned()))
    }

    /// Integrity of this database; shared with the catalog.
    fn condition(&self) -> Condition;

    /// Number of quota rows per backend. On a database with concurrent writers, a single row that every write changes
    /// would limit throughput.
    fn stripes(&self) -> u32;

    /// Number of rows that one unit may move between tables, so that it delays other writers by milliseconds.
    fn moved_rows_max(&self) -> usize;

    /// Counters since the driver was opened.
    fn effort(&self) -> Effort;
}
