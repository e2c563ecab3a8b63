//! The generation of a database: a number that increases with every start, in the database and in a file next to it.
//!
//! The file is written first, then the database. If the file is more than one ahead, the database was replaced by an
//! older one, which misses acknowledged objects. The file also records a clean stop, after which there is no
//! write-ahead log. A log that exists then belongs to another database.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::open::sibling;
use super::statement::translate;
use crate::condition::Condition;
use crate::error::Error;

/// Content of the generation file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    generation: i64,
    /// True if the process that wrote it has stopped and left no log.
    clean: bool,
}

fn file(database: &Path) -> PathBuf {
    sibling(database, ".generation")
}

/// `None` if the file is missing or unreadable.
fn noted(database: &Path) -> Option<Noted> {
    let text = std::fs::read(file(database)).ok()?;
    serde_json::from_slice(&text).ok()
}

fn note(database: &Path, noted: Noted) -> std::io::Result<()> {
    let (path, draft) = (file(database), sibling(database, ".generation.tmp"));
    let mut open = OpenOptions::new();
    let mut written = open.create(true).write(true).truncate(true).mode(0o600).open(&draft)?;
    written.write_all(&serde_json::to_vec(&noted)?)?;
    written.sync_all()?;
    std::fs::rename(&draft, &path)?;
    sync_folder(database)
}

/// Syncs the folder of the database, which makes created and renamed files durable.
pub(super) fn sync_folder(database: &Path) -> std::io::Result<()> {
    match database.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

/// Withdraws the note of a clean stop: from now on there may be a log that belongs to the database.
pub(super) fn begin_unclean(database: &Path) -> Result<(), Error> {
    let Some(last) = noted(database).filter(|noted| noted.clean) else { return Ok(()) };
    let away = |error: std::io::Error| Error::Away(format!("{}: {error}", file(database).display()));
    note(database, Noted { clean: false, ..last }).map_err(away)
}

/// Refuses a log that cannot belong to the database. Call it before the database is opened, since SQLite applies any
/// log that it finds.
pub(super) fn refuse_foreign_log(database: &Path) -> Result<(), Error> {
    let log = sibling(database, "-wal");
    let left = std::fs::metadata(&log).is_ok_and(|found| found.len() > 0);
    if !left || !noted(database).is_some_and(|noted| noted.clean) {
        return Ok(());
    }
    Err(Error::Corrupt(format!(
        "{} was closed cleanly and had no log, but {} exists: it belongs to another copy of the database. \
         Restore a complete copy with `s3o catalog restore`, or move the log away",
        database.display(),
        log.display()
    )))
}

/// The generation stored in a database.
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
                "the database is older than the one that was served last: it has generation {kept}, generation {} was \
                 served; restore the newest one, or accept this one with `s3o catalog restore {}`",
                noted.generation,
                database.display()
            ));
            return Ok(());
        }
        Some(noted) if noted.generation < kept => {
            let file = noted.generation;
            tracing::warn!(catalog = kept, file, "generation file is behind the catalog, rewriting it");
        }
        None if kept > 0 => tracing::warn!(catalog = kept, "generation file is missing, rewriting it"),
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

/// Sets the generation of a restored database to one that is newer than any generation served at this path.
pub(super) fn after_restore(database: &Path, connection: &Connection) -> Result<(), Error> {
    let served = noted(database).map_or(0, |noted| noted.generation);
    advance(database, connection, of(connection)?.max(served).saturating_add(1))
}

/// Records a clean stop when it is dropped, which must be after the last connection was closed.
pub(super) struct CleanStop {
    pub database: PathBuf,
    pub condition: Condition,
}

impl Drop for CleanStop {
    fn drop(&mut self) {
        let left = std::fs::metadata(sibling(&self.database, "-wal")).is_ok_and(|found| found.len() > 0);
        let Some(last) = noted(&self.database).filter(|_| !left && !self.condition.is_damaged()) else { return };
        if let Err(error) = note(&self.database, Noted { clean: true, ..last }) {
            tracing::warn!(%error, "cannot record clean shutdown of the catalog");
        }
    }
}
