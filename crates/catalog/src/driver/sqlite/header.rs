//! The header of a database file, read without opening it as a database: no lock, no log, no change.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::open::APPLICATION_ID;
use crate::error::Error;

const MAGIC: &[u8] = b"SQLite format 3\0";
/// Where the header keeps the application's number, in four bytes.
const APPLICATION_ID_AT: usize = 68;
const HEADER_BYTES: usize = 100;

/// Checks that a file looks like a catalog of ours. It may be in use; nothing is changed.
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
        other => Err(Error::Corrupt(format!("the database is not a catalog of s3o: its application id is {other:#x}"))),
    }
}
