//! The SQLite driver: one writer with group commit, a pool of readers, one process per file.
//!
//! Units that wait are committed together: one transaction, a savepoint each, one fsync. The next
//! group forms while the last one is in flight. Nothing is acknowledged before its COMMIT.

#[cfg(test)]
pub(crate) mod facts;
mod header;
mod open;
mod readers;
mod statement;
mod writer;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use s3o_model::clock::Clock;

use super::{Driver, Effort};
use crate::error::Error;
use crate::unit::{Answer, Row, Statement, Unit};

pub use header::check_sqlite;
use readers::Readers;
use writer::Writer;

/// Where work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Writes on a thread of their own, grouped.
    Threaded,
    /// Everything on the caller, one unit a transaction: deterministic, for simulation.
    Inline,
}

/// How to open a catalog.
#[derive(Clone)]
pub struct SqliteOptions {
    /// The database file.
    pub path: PathBuf,
    /// Where work is done.
    pub mode: Mode,
    /// The clock that `:now` shows.
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
    /// Held for as long as the catalog is open, so that a second process is refused.
    _lock: std::fs::File,
}

impl Sqlite {
    /// Opens or creates a catalog and brings its schema up to date.
    pub fn open(options: &SqliteOptions) -> Result<Self, Error> {
        let opened = open::open(&options.path)?;
        let counters = Arc::new(Counters::default());
        let writer = Writer::new(opened.writer, options, Arc::clone(&counters))?;
        let readers = Arc::new(Readers::new(options.path.clone(), Arc::clone(&options.clock)));
        Ok(Self { writer, readers, mode: options.mode, counters, _lock: opened.lock })
    }
}

#[async_trait]
impl Driver for Sqlite {
    async fn write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.counters.units.fetch_add(1, Ordering::Relaxed);
        self.writer.run(unit).await
    }

    async fn read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        // A lookup takes microseconds and never waits for a lock; a loop of them must still let
        // other tasks run.
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

    fn stripes(&self) -> u32 {
        1
    }

    fn effort(&self) -> Effort {
        Effort {
            units: self.counters.units.load(Ordering::Relaxed),
            commits: self.counters.commits.load(Ordering::Relaxed),
            rows_read: self.counters.rows_read.load(Ordering::Relaxed),
        }
    }
}
