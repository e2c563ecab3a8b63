//! Opens a database file for one process, with durable settings and a migrated schema. A file of another program, a
//! damaged file and a schema newer than this program are refused and not written to.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::generation;
use super::statement::translate;
use crate::error::Error;
use crate::migrations;

/// SQLite's `application_id` of a catalog: "s3o" and a version of the file's layout.
pub(super) const APPLICATION_ID: i64 = 0x7333_6F01;

/// The writing connection and the lock that keeps other processes out.
pub(super) struct OpenDatabase {
    pub writer: Connection,
    pub lock: File,
}

/// Opens one more connection to a database file.
pub(super) fn connect(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = Connection::open_with_flags(path, flags).map_err(translate)?;
    // Without this, SQLite compiles a cached statement again when a bound value could change its plan. That is a
    // quarter of the cost of a lookup, and the plans of these statements do not depend on values.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(translate)?;
    Ok(connection)
}

pub(super) fn open(path: &Path) -> Result<OpenDatabase, Error> {
    let lock = lock_file(path)?;
    generation::refuse_foreign_log(path)?;
    let mut writer = connect(path)?;
    // Closing a connection checkpoints the log that a crash left. A refused database must keep its log.
    let has_log = std::fs::metadata(sibling(path, "-wal")).is_ok_and(|log| log.len() > 0);
    keep_log(&writer, has_log)?;
    check_ours(&writer)?;
    keep_log(&writer, false)?;
    // A migration writes a log. A crash during it must not leave that log with the note of a clean stop.
    generation::begin_unclean(path)?;
    prepare(&mut writer)?;
    Ok(OpenDatabase { writer, lock })
}

/// Configures a writing connection and migrates the schema.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), Error> {
    configure(connection)?;
    migrate(connection)
}

/// The path of the database with `ending` appended to the file name.
pub(super) fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn keep_log(connection: &Connection, keep: bool) -> Result<(), Error> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop).map_err(translate)
}

/// Locks the database file, because s3o must run in one process although SQLite allows several. The lock is on the
/// file itself, so that another path to the same file finds it. It is an flock, which SQLite's own locks do not touch.
pub(super) fn lock_file(path: &Path) -> Result<File, Error> {
    let describe = |error: &dyn std::fmt::Display| Error::Away(format!("{}: {error}", path.display()));
    // SQLite creates its other files with the mode of the database file.
    let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
    let file = opened.map_err(|e| describe(&e))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::InUse(path.display().to_string())),
        Err(TryLockError::Error(error)) => Err(describe(&error)),
    }
}

/// Refuses a database of another program or of a newer version, without writing to it.
pub(super) fn check_ours(connection: &Connection) -> Result<(), Error> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(translate);
    if number("SELECT count(*) FROM sqlite_schema")? == 0 {
        return Ok(());
    }
    if number("PRAGMA application_id")? != APPLICATION_ID {
        return Err(Error::Corrupt("the database belongs to another program".to_owned()));
    }
    let found = number("PRAGMA user_version")?;
    let known = newest_version();
    if found > known { Err(Error::Newer { found, known }) } else { quick_check(connection) }
}

/// Reads root pages, not tables: fast at any size.
fn quick_check(connection: &Connection) -> Result<(), Error> {
    connection.query_row("SELECT count(*) FROM backends", [], |row| row.get::<_, i64>(0)).map_err(translate)?;
    Ok(())
}

fn newest_version() -> i64 {
    i64::try_from(migrations::SQLITE.len()).expect("a handful of migrations")
}

fn configure(connection: &Connection) -> Result<(), Error> {
    connection.busy_timeout(Duration::from_secs(10)).map_err(translate)?;
    connection.set_prepared_statement_cache_capacity(256);
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL;
             PRAGMA foreign_keys = ON;
             PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = -32768;
             PRAGMA wal_autocheckpoint = 4000;
             PRAGMA journal_size_limit = 67108864;",
        )
        .map_err(translate)
}

fn migrate(connection: &mut Connection) -> Result<(), Error> {
    let current: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(translate)?;
    let done = usize::try_from(current).map_err(|_| Error::Corrupt(format!("schema version {current} is negative")))?;
    for (position, step) in migrations::SQLITE.iter().enumerate().skip(done) {
        let version = position + 1;
        let transaction = connection.transaction().map_err(translate)?;
        transaction
            .execute_batch(&format!(
                "{step}; PRAGMA user_version = {version}; PRAGMA application_id = {APPLICATION_ID};"
            ))
            .map_err(translate)?;
        transaction.commit().map_err(translate)?;
    }
    Ok(())
}
