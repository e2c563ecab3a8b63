//! The generation of a database: a number that grows with every start, in the database and in a file beside it.
//!
//! The file is written first, then the database. Where the file is further ahead than a crash between the two explains,
//! an older database was put in place: it misses objects that were acknowledged. The file also notes a clean stop,
//! after which no write-ahead log is left: one that lies there belongs to another database.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::open::beside;
use super::statement::translate;
use crate::condition::Condition;
use crate::error::Error;

/// What the file beside the database holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    generation: i64,
    /// Whether the process that wrote it has stopped and left no log.
    clean: bool,
}

fn file(database: &Path) -> PathBuf {
    beside(database, ".generation")
}

/// What is noted; nothing, where there is no file or none that can be read.
fn noted(database: &Path) -> Option<Noted> {
    let text = std::fs::read(file(database)).ok()?;
    serde_json::from_slice(&text).ok()
}

fn note(database: &Path, noted: Noted) -> std::io::Result<()> {
    let (path, draft) = (file(database), beside(database, ".generation.tmp"));
    let mut open = OpenOptions::new();
    let mut written = open.create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
    written.write_all(&serde_json::to_vec(&noted)?)?;
    written.sync_all()?;
    std::fs::rename(&draft, &path)?;
    sync_folder(database)
}

/// Makes the names in the folder of the database durable.
pub(super) fn sync_folder(database: &Path) -> std::io::Result<()> {
    match database.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

/// Notes that the last stop is no longer the last event: from now on there may be a log, which belongs to the database.
pub(super) fn begin_unclean(database: &Path) -> Result<(), Error> {
    let Some(last) = noted(database).filter(|noted| noted.clean) else { return Ok(()) };
    let away = |error: std::io::Error| Error::Away(format!("{}: {error}", file(database).display()));
    note(database, Noted { clean: false, ..last }).map_err(away)
}

/// Refuses a log that cannot belong to the database: nothing may read it, since SQLite applies whatever lies there.
pub(super) fn refuse_foreign_log(database: &Path) -> Result<(), Error> {
    let log = beside(database, "-wal");
    let left = std::fs::metadata(&log).is_ok_and(|found| found.len() > 0);
    if !left || !noted(database).is_some_and(|noted| noted.clean) {
        return Ok(());
    }
    Err(Error::Corrupt(format!(
        "{} was closed cleanly and had no log, yet {} is there: it belongs to another copy of the database. \
         Restore a whole copy with `s3o catalog restore`, or move the log away",
        database.display(),
        log.display()
    )))
}

/// The generation that a database says it has.
pub(super) fn of(connection: &Connection) -> Result<i64, Error> {
    connection.query_row("SELECT generation FROM generation", [], |row| row.get(0)).map_err(translate)
}

fn set(connection: &Connection, generation: i64) -> Result<(), Error> {
    connection.execute("UPDATE generation SET generation = ?1", [generation]).map(drop).map_err(translate)
}

/// Begins the next generation. An older database is marked as damaged, and neither number changes.
pub(super) fn begin(database: &Path, connection: &Connection, condition: &Condition) -> Result<(), Error> {
    let kept = of(connection)?;
    match noted(database) {
        Some(noted) if noted.generation > kept.saturating_add(1) => {
            condition.damage(&format!(
                "this is an older database: it is of generation {kept}, and generation {} was served; restore the newest \
                 one, or accept this one with `s3o catalog restore {}`",
                noted.generation,
                database.display()
            ));
            return Ok(());
        }
        Some(noted) if noted.generation < kept => {
            tracing::warn!(kept, noted = noted.generation, "generation file is behind the catalog, rewriting it");
        }
        None if kept > 0 => tracing::warn!(kept, "generation file is missing, rewriting it"),
        Some(_) | None => {}
    }
    advance(database, connection, kept.saturating_add(1))
}

/// Sets both numbers, the file first.
pub(super) fn advance(database: &Path, connection: &Connection, generation: i64) -> Result<(), Error> {
    let away = |error: std::io::Error| Error::Away(format!("{}: {error}", file(database).display()));
    note(database, Noted { generation, clean: false }).map_err(away)?;
    set(connection, generation)
}

/// The generation that a restored database gets: newer than any that was served from there.
pub(super) fn after_restore(database: &Path, connection: &Connection) -> Result<(), Error> {
    let served = noted(database).map_or(0, |noted| noted.generation);
    advance(database, connection, of(connection)?.max(served).saturating_add(1))
}

/// Notes a clean stop when it is dropped, behind the last connection.
pub(super) struct CleanStop {
    pub database: PathBuf,
    pub condition: Condition,
}

impl Drop for CleanStop {
    fn drop(&mut self) {
        let left = std::fs::metadata(beside(&self.database, "-wal")).is_ok_and(|found| found.len() > 0);
        let Some(last) = noted(&self.database).filter(|_| !left && !self.condition.is_damaged()) else { return };
        if let Err(error) = note(&self.database, Noted { clean: true, ..last }) {
            tracing::warn!(%error, "clean shutdown of the catalog not recorded");
        }
    }
}
