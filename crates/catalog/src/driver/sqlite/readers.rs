//! Reader connections: as many as are used at once, kept for the next reader.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use s3o_model::clock::Clock;

use super::open::connect;
use super::statement::{Dialect, run, translate};
use crate::error::Error;
use crate::unit::{Row, Statement};

struct Reader {
    connection: Connection,
    dialect: Dialect,
}

pub(super) struct Readers {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    idle: Mutex<Vec<Reader>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self { path, clock, idle: Mutex::new(Vec::new()) }
    }

    pub(super) fn query(&self, statement: &Statement) -> Result<Vec<Row>, Error> {
        let mut reader = self.take()?;
        let answer = run(&reader.connection, &mut reader.dialect, statement, self.clock.now());
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
        Ok(answer.map_err(translate)?.rows)
    }

    fn take(&self) -> Result<Reader, Error> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(|| self.connect(), Ok)
    }

    fn connect(&self) -> Result<Reader, Error> {
        let connection = connect(&self.path)?;
        connection.set_prepared_statement_cache_capacity(128);
        // `query_only` instead of a read-only open: a read-only handle cannot recover the log of
        // a process that died.
        connection
            .execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -8192; PRAGMA mmap_size = 268435456;")
            .map_err(translate)?;
        Ok(Reader { connection, dialect: Dialect::default() })
    }
}
