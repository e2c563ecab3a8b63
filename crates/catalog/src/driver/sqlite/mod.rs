//! The SQLite driver: one writer with group commit, a pool of readers, one process per file.
//!
//! Waiting units are committed together: one transaction, one savepoint per unit, one fsync. The next group forms while
//! the last one is committed. No unit is acknowledged before its COMMIT.

pub(crate) mod copies;
mod generation;
mod header;
mod integrity;
mod open;
mod readers;
mod statement;
#[cfg(test)]
pub(crate) mod tests;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use s3o_model::clock::Clock;

use super::{Driver, Effort};
use crate::condition::Condition;
use crate::error::Error;
use crate::unit::{Answer, Row, Statement, Unit};

pub use header::check_sqlite;

use generation::CleanStop;
use readers::Readers;
use writer::Writer;

/// On which thread statements run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Units run in groups on a writer thread, scans on the blocking pool.
    Threaded,
    /// Everything runs on the caller's thread, one transaction per unit: deterministic, for simulation.
    Inline,
}

/// How to open a catalog.
#[derive(Clone)]
pub struct SqliteOptions {
    /// The database file; created if it does not exist.
    pub path: PathBuf,
    /// Production uses [`Mode::Threaded`].
    pub mode: Mode,
    /// The time of `:now` in statements.
    pub clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Counters {
    units: AtomicU64,
    commits: AtomicU64,
    rows_read: AtomicU64,
}

/// An open SQLite catalog.
pub struct Sqlite {
    writer: Writer,
    readers: Arc<Readers>,
    mode: Mode,
    counters: Arc<Counters>,
    condition: Condition,
    /// Dropped after the fields above, which have the database open.
    _stop: CleanStop,
    /// Keeps a second process from opening the catalog.
    _lock: std::fs::File,
}

impl Sqlite {
    /// Opens or creates a catalog and migrates its schema.
    pub fn open(options: &SqliteOptions) -> Result<Self, Error> {
        let opened = open::open(&options.path)?;
        let (counters, condition) = (Arc::new(Counters::default()), Condition::default());
        generation::begin(&options.path, &opened.writer, &condition)?;
        let writer = Writer::new(opened.writer, options, Arc::clone(&counters), condition.clone())?;
        let readers = Readers::new(options.path.clone(), Arc::clone(&options.clock), condition.clone());
        let stop = CleanStop { database: options.path.clone(), condition: condition.clone() };
        let (mode, readers) = (options.mode, Arc::new(readers));
        Ok(Self { writer, readers, mode, counters, condition, _stop: stop, _lock: opened.lock })
    }

    /// Runs long work on the database file in the blocking pool.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&std::path::Path) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let readers = Arc::clone(&self.readers);
        let done = tokio::task::spawn_blocking(move || work(readers.path())).await;
        done.map_err(|error| Error::Internal(error.to_string()))?
    }
}

#[async_trait]
impl Driver for Sqlite {
    async fn write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.counters.units.fetch_add(1, Ordering::Relaxed);
        self.writer.run(unit).await
    }

    async fn read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        // A lookup takes microseconds and never waits for a lock; a loop of lookups must still let other tasks run.
        tokio::task::coop::consume_budget().await;
        let rows = self.readers.query(&query)?;
        self.counters.rows_read.fetch_add(rows.len() as u64, Ordering::Relaxed);
        Ok(rows)
    }

    async fn scan(&self, query: Statement) -> Result<Vec<Row>, Error> {
        if self.mode == Mode::Inline {
            return self.read(query).await;
        }
        let readers = Arc::clone(&self.readers);
        let scanned = tokio::task::spawn_blocking(move || readers.query(&query)).await;
        let rows = scanned.map_err(|error| Error::Internal(error.to_string()))??;
        self.counters.rows_read.fetch_add(rows.len() as u64, Ordering::Relaxed);
        Ok(rows)
    }

    async fn read_both_ways(&self, query: Statement, by_table: Statement) -> Result<(Vec<Row>, Vec<Row>), Error> {
        let readers = Arc::clone(&self.readers);
        let (first, second) = if self.mode == Mode::Inline {
            readers.both(&query, &by_table)?
        } else {
            let both = tokio::task::spawn_blocking(move || readers.both(&query, &by_table)).await;
            both.map_err(|error| Error::Internal(error.to_string()))??
        };
        self.counters.rows_read.fetch_add((first.len() + second.len()) as u64, Ordering::Relaxed);
        Ok((first, second))
    }

    async fn check_integrity(&self) -> Result<Vec<String>, Error> {
        self.blocking(integrity::check).await
    }

    async fn backup(&self, to: &std::path::Path) -> Result<u64, Error> {
        let to = to.to_owned();
        self.blocking(move |database| copies::backup(database, &to)).await
    }

    fn condition(&self) -> Condition {
        self.condition.clone()
    }

    fn stripes(&self) -> u32 {
        1
    }

    /// A thousand rows would hold the only writer for 40 ms, these for 8 ms.
    fn moved_rows_max(&self) -> usize {
        250
    }

    fn effort(&self) -> Effort {
        Effort {
            units: self.counters.units.load(Ordering::Relaxed),
            commits: self.counters.commits.load(Ordering::Relaxed),
            rows_read: self.counters.rows_read.load(Ordering::Relaxed),
        }
    }
}
