//! Reader connections. The pool grows to the number of concurrent readers and keeps idle connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use s3o_model::clock::Clock;

use super::open::connect;
use super::statement::{SqliteStatements, judge, run, translate};
use crate::condition::Condition;
use crate::error::Error;
use crate::unit::{Row, Statement};

struct Reader {
    connection: Connection,
    statements: SqliteStatements,
}

pub(super) struct Readers {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    condition: Condition,
    idle: Mutex<Vec<Reader>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, clock: Arc<dyn Clock>, condition: Condition) -> Self {
        Self { path, clock, condition, idle: Mutex::new(Vec::new()) }
    }

    pub(super) fn query(&self, statement: &Statement) -> Result<Vec<Row>, Error> {
        let mut reader = self.take()?;
        let answer = run(&reader.connection, &mut reader.statements, statement, self.clock.now());
        self.keep(reader);
        Ok(answer.map_err(|error| judge(&self.condition, error))?.rows)
    }

    /// Runs two queries in one read transaction, so that both see the same snapshot.
    pub(super) fn both(&self, first: &Statement, second: &Statement) -> Result<(Vec<Row>, Vec<Row>), Error> {
        let mut reader = self.take()?;
        let mut one = |statement| run(&reader.connection, &mut reader.statements, statement, self.clock.now());
        reader.connection.execute_batch("BEGIN").map_err(translate)?;
        let answers = one(first).and_then(|first| Ok((first.rows, one(second)?.rows)));
        reader.connection.execute_batch("COMMIT").map_err(translate)?;
        self.keep(reader);
        answers.map_err(|error| judge(&self.condition, error))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn keep(&self, reader: Reader) {
        self.idle.lock().push(reader);
    }

    fn take(&self) -> Result<Reader, Error> {
        let kept = self.idle.lock().pop();
        kept.map_or_else(|| self.connect(), Ok)
    }

    fn connect(&self) -> Result<Reader, Error> {
        let connection = connect(&self.path)?;
        connection.set_prepared_statement_cache_capacity(128);
        // `query_only` instead of a read-only open: a read-only connection cannot recover the log of a process that
        // crashed.
        connection
            .execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -8192; PRAGMA mmap_size = 268435456;")
            .map_err(translate)?;
        Ok(Reader { connection, statements: SqliteStatements::default() })
    }
}
