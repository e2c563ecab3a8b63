//! The header of a database file, read as a plain file: without a lock, without its log, without a change.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::open::{APPLICATION_ID, sibling};
use crate::error::Error;

const MAGIC: &[u8] = b"SQLite format 3\0";
/// Offset of the four bytes with the `application_id`.
const APPLICATION_ID_AT: usize = 68;
const HEADER_BYTES: usize = 100;

/// Checks that the header of a file is that of a catalog. The file may be in use.
pub fn check_sqlite(path: &Path) -> Result<(), Error> {
    let mut header = [0; HEADER_BYTES];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    read.map_err(|error| Error::Away(error.to_string()))?;
    if !header.starts_with(MAGIC) {
        return Err(Error::Corrupt("the file is not a SQLite database".to_owned()));
    }
    let mut number = [0; 4];
    number.copy_from_slice(&header[APPLICATION_ID_AT..APPLICATION_ID_AT + 4]);
    match i64::from(u32::from_be_bytes(number)) {
        APPLICATION_ID => Ok(()),
        // The first start has not checkpointed its log yet; the number is in the log.
        0 if std::fs::metadata(sibling(path, "-wal")).is_ok_and(|log| log.len() > 0) => Ok(()),
        other => Err(Error::Corrupt(format!("the database is not a catalog of s3o: its application_id is {other:#x}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::check_sqlite;
    use rusqlite::Connection;

    #[test]
    fn a_database_whose_first_start_is_still_running_is_a_catalog() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("catalog.db");
        let connection = Connection::open(&path).expect("a database");
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (c)").expect("a table in the log");
        check_sqlite(&path).expect("the application_id may be in the log");
        drop(connection);
        check_sqlite(&path).expect_err("without a log the file belongs to another program");
    }
}
