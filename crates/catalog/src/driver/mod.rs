//! Drivers: each runs units on one database.

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

/// What a driver has done so far, for metrics and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Units that were run.
    pub units: u64,
    /// Transactions that were committed.
    pub commits: u64,
    /// Rows that queries returned.
    pub rows_read: u64,
}

/// Runs units on one database.
#[async_trait]
pub trait Driver: Send + Sync {
    /// Runs a unit atomically: all of it, durably, or nothing. Not started is not done: dropping
    /// the future either way leaves a whole unit or none.
    async fn write(&self, unit: Unit) -> Result<Vec<Answer>, Error>;

    /// Runs a query outside any transaction.
    async fn read(&self, query: Statement) -> Result<Vec<Row>, Error>;

    /// Runs a query that reads through much of a table: it may take its time, and holds nobody up.
    async fn scan(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.read(query).await
    }

    /// Runs two queries on one snapshot: the first as the database chooses, the second by reading tables alone,
    /// without their indexes.
    async fn read_both_ways(&self, query: Statement, by_table: Statement) -> Result<(Vec<Row>, Vec<Row>), Error>;

    /// Faults that the database finds in itself, without stopping anything else. It fails where the check is not installed.
    async fn check_integrity(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Writes a whole copy to a file that is not there yet, beside everything else; how many bytes it has is returned.
    async fn backup(&self, _to: &std::path::Path) -> Result<u64, Error> {
        Err(Error::Internal("this database is backed up with its own tools".to_owned()))
    }

    /// Whether this database can be trusted.
    fn condition(&self) -> Condition;

    /// How many stripes a backend's books should have here: one row that every write changes is the
    /// ceiling of a database with many writers, and costs nothing where there is one.
    fn stripes(&self) -> u32;

    /// What was done so far.
    fn effort(&self) -> Effort;
}
