//! Backups of a database that is in use, and restores of one that is not.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::open::{self, connect, sibling};
use super::statement::translate;
use super::{generation, integrity};
use crate::error::Error;

/// Writes a complete copy of a database to `to`, which must not exist, with mode 0600. Returns its size in bytes.
pub(super) fn backup(database: &Path, to: &Path) -> Result<u64, Error> {
    let away = |error: std::io::Error| Error::Away(format!("{}: {error}", to.display()));
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(to).map_err(away)?;
    let copied = copy(database, to).and_then(|()| {
        file.sync_all().map_err(away)?;
        Ok(file.metadata().map_err(away)?.len())
    });
    if copied.is_err() {
        std::fs::remove_file(to).unwrap_or_default();
    }
    copied
}

/// `VACUUM INTO` reads every row, so a damaged page is an error instead of a damaged copy.
fn copy(database: &Path, to: &Path) -> Result<(), Error> {
    let connection = connect(database)?;
    let to = to.to_str().ok_or_else(|| Error::Internal("the path of the copy is not valid UTF-8".to_owned()))?;
    connection.execute("VACUUM INTO ?1", [to]).map(drop).map_err(translate)
}

/// Replaces a database that no process uses by a complete copy, and returns the new path of the replaced database.
/// With the database itself as the copy, only its generation changes.
pub fn restore(from: &Path, database: &Path) -> Result<Option<PathBuf>, Error> {
    demand_undamaged(from)?;
    let lock = open::lock_file(database)?;
    let mut kept = None;
    if !is_same(from, database) {
        let draft = sibling(database, ".restore");
        std::fs::remove_file(&draft).unwrap_or_default();
        backup(from, &draft)?;
        open::check_ours(&connect(&draft)?)?;
        kept = rename_existing(database)?;
        let away = |error: std::io::Error| Error::Away(format!("{}: {error}", database.display()));
        std::fs::rename(&draft, database).map_err(away)?;
        generation::sync_folder(database).map_err(away)?;
    }
    // The first lock is on the replaced file; the new file needs its own.
    let lock_of_new = if is_same(from, database) { None } else { Some(open::lock_file(database)?) };
    generation::begin_unclean(database)?;
    let mut connection: Connection = connect(database)?;
    open::prepare(&mut connection)?;
    generation::after_restore(database, &connection)?;
    drop(connection);
    drop((lock, lock_of_new));
    Ok(kept)
}

/// A missing, empty or damaged catalog must not replace one that may be better.
fn demand_undamaged(from: &Path) -> Result<(), Error> {
    let broken = |why: &str| Error::Corrupt(format!("{}: {why}", from.display()));
    if std::fs::metadata(from).map_or(true, |found| found.len() == 0) {
        return Err(broken("there is no catalog"));
    }
    // Reading a database applies its log, and closing it checkpoints the log.
    generation::refuse_foreign_log(from)?;
    integrity::check(from)?.first().map_or(Ok(()), |fault| Err(broken(fault)))
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other || one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Renames the existing database and its log; returns the new path, or `None` if there was no database.
fn rename_existing(database: &Path) -> Result<Option<PathBuf>, Error> {
    let is_empty = std::fs::metadata(database).map_or(true, |found| found.len() == 0);
    let names = (1..).map(|number| sibling(database, &format!(".before-restore-{number}")));
    let kept = names.into_iter().find(|name| !name.exists()).expect("numbers do not end");
    for ending in ["", "-wal", "-shm"] {
        let (from, to) = (sibling(database, ending), sibling(&kept, ending));
        match std::fs::rename(&from, &to) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::Away(format!("{}: {error}", from.display()))),
        }
    }
    if is_empty {
        std::fs::remove_file(&kept).unwrap_or_default();
    }
    Ok((!is_empty).then_some(kept))
}
