//! One statement on one connection: translates the common dialect to SQLite's, binds parameters, reads rows and
//! translates errors.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql, ffi};
use s3o_model::clock::Timestamp;

use crate::condition::Condition;
use crate::driver::dialect::{params_of, respell};
use crate::error::Error;
use crate::unit::{Answer, Columns, Row, Statement, Value};

/// Translated statements of one connection, by their text in the common dialect.
#[derive(Debug, Default)]
pub(super) struct SqliteStatements(HashMap<&'static str, SqliteStatement>);

impl SqliteStatements {
    fn of(&mut self, sql: &'static str) -> &mut SqliteStatement {
        self.0.entry(sql).or_insert_with(|| to_sqlite(sql))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct SqliteStatement {
    sql: String,
    /// Number of the caller's parameters that the statement mentions.
    params: usize,
    /// Number of the parameter that takes the clock.
    clock: Option<usize>,
    /// Set by the first run.
    columns: Option<Arc<Columns>>,
}

/// `$1` becomes `?1`. `:now` becomes the number after the last parameter, since SQLite numbers named parameters by
/// first appearance. Lock marks are removed: there is one writer.
fn to_sqlite(sql: &str) -> SqliteStatement {
    let params = params_of(sql);
    let clock = sql.contains(":now").then_some(params + 1);
    let mut out = sql.replace("/*lock*/", "").replace("/*share*/", "").replace("/*skip*/", "");
    for word in ["TEXTS", "NUMBERS"] {
        out = respell(&out, word, |list| format!("(SELECT value FROM json_each({list}))"));
    }
    // Neither `NOT INDEXED` nor a plus sign keeps SQLite from a covering index; a column that no index holds does. The
    // expression uses its type because a damaged row may hold any value and must still be counted. A CASE does not
    // imply NOT NULL, which would allow a partial index.
    out = respell(&out, "UNINDEXED", |columns| {
        let (column, other) = columns.split_once(';').unwrap_or((columns, columns));
        format!("CASE WHEN typeof({}) <> '' THEN {column} END", other.trim())
    });
    for number in 1..=params {
        out = out.replace(&format!("${number}"), &format!("?{number}"));
    }
    SqliteStatement { sql: out.replace(":now", &format!("?{}", params + 1)), params, clock, columns: None }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// Runs one statement to its end and reads all of its rows.
pub(super) fn run(
    connection: &Connection,
    statements: &mut SqliteStatements,
    statement: &Statement,
    now: Timestamp,
) -> Result<Answer, rusqlite::Error> {
    let translated = statements.of(statement.sql);
    let mut prepared = connection.prepare_cached(&translated.sql)?;
    for (position, value) in statement.params.iter().take(translated.params).enumerate() {
        prepared.raw_bind_parameter(position + 1, value)?;
    }
    if let Some(position) = translated.clock {
        prepared.raw_bind_parameter(position, now.millis())?;
    }
    if prepared.column_count() == 0 {
        return Ok(Answer { rows: Vec::new(), changed: prepared.raw_execute()? });
    }
    let columns = translated.columns.get_or_insert_with(|| {
        let names = prepared.column_names().map(str::to_owned).collect();
        Arc::new(Columns { sql: statement.sql, names })
    });
    let mut rows = Vec::new();
    let mut cursor = prepared.raw_query();
    while let Some(row) = cursor.next()? {
        let values = (0..columns.names.len()).map(|column| row.get_ref(column).and_then(|v| owned(column, v)));
        rows.push(Row::new(Arc::clone(columns), values.collect::<Result<_, _>>()?));
    }
    let changed = rows.len();
    Ok(Answer { rows, changed })
}

fn owned(column: usize, value: ValueRef<'_>) -> rusqlite::Result<Value> {
    match value {
        ValueRef::Null => Ok(Value::Null),
        ValueRef::Integer(number) => Ok(Value::Int(number)),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Value::Text(text.to_owned())),
            Err(error) => Err(rusqlite::Error::Utf8Error(column, error)),
        },
        ValueRef::Real(_) | ValueRef::Blob(_) => {
            Err(rusqlite::Error::InvalidColumnType(column, String::new(), value.data_type()))
        }
    }
}

/// Translates an error, and marks the catalog as damaged if the error proves it.
pub(super) fn judge(condition: &Condition, error: rusqlite::Error) -> Error {
    if is_damage(&error) {
        condition.damage(&error.to_string());
    }
    translate(error)
}

/// True for errors that prove damage of the database file. A full disk is no damage.
fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        // No statement of this crate writes such a value.
        rusqlite::Error::Utf8Error(..) | rusqlite::Error::InvalidColumnType(..) => true,
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt => true,
            ErrorCode::SystemIoFailure => DAMAGED_IO.contains(&failure.extended_code),
            _ => false,
        },
        _ => false,
    }
}

/// Failed reads, short reads, writes and syncs. A full disk has a code of its own, and failures of shared memory or
/// locks do not damage the database.
const DAMAGED_IO: [i32; 4] =
    [ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_SHORT_READ, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_FSYNC];

/// The catalog error for a database error, by what the caller can do about it.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes a value")]
pub(super) fn translate(error: rusqlite::Error) -> Error {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::PermissionDenied,
        ) => Error::Away(text),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Error::Corrupt(text),
        None if is_damage(&error) => Error::Corrupt(text),
        Some(_) | None => Error::Internal(text),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::{judge, to_sqlite};
    use crate::{Condition, Error, Integrity};

    /// The condition of a catalog after a statement that failed with this code.
    fn integrity_after(code: i32) -> Integrity {
        let condition = Condition::default();
        let failure = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        assert!(matches!(judge(&condition, failure), Error::Away(_)), "{code}: a repeated request may succeed");
        condition.integrity()
    }

    #[test]
    fn io_errors_of_the_database_file_mark_the_catalog_damaged() {
        let of_the_file =
            [ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_SHORT_READ, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_FSYNC];
        for code in of_the_file {
            assert!(matches!(integrity_after(code), Integrity::Damaged(_)), "{code}");
        }
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_LOCK, ffi::SQLITE_IOERR_SHMOPEN, ffi::SQLITE_BUSY] {
            assert_eq!(integrity_after(code), Integrity::Sound, "{code}");
        }
    }

    #[test]
    fn parameters_keep_their_numbers_in_any_order() {
        let translated = to_sqlite("SELECT :now, $2, $1, '$[0]' /*lock*/");
        assert_eq!(translated.sql, "SELECT ?3, ?2, ?1, '$[0]' ");
        assert_eq!((translated.params, translated.clock), (2, Some(3)));
        assert_eq!(to_sqlite("SELECT $10").params, 10);
    }
}
