//! One statement on one connection: the common dialect becomes SQLite's, values go in, rows come
//! out, errors are translated.

use std::collections::HashMap;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, ToSql, ffi};
use s3o_model::clock::Timestamp;

use crate::condition::Condition;
use crate::driver::dialect::{params_of, respell};
use crate::error::Error;
use crate::unit::{Answer, Row, Statement, Value};

/// Statements in SQLite's words, by their text in the common dialect.
#[derive(Debug, Default)]
pub(super) struct Dialect(HashMap<&'static str, Translated>);

impl Dialect {
    fn of(&mut self, sql: &'static str) -> &Translated {
        self.0.entry(sql).or_insert_with(|| to_sqlite(sql))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Translated {
    sql: String,
    /// How many of the caller's parameters the statement mentions.
    params: usize,
    /// Where the clock goes.
    clock: Option<usize>,
}

/// `$1` becomes `?1` and `:now` a number behind the last one, since SQLite numbers named
/// parameters by first appearance; locks are left to the single writer.
fn to_sqlite(sql: &str) -> Translated {
    let params = params_of(sql);
    let clock = sql.contains(":now").then_some(params + 1);
    let mut out = sql.replace("/*lock*/", "").replace("/*share*/", "").replace("/*skip*/", "");
    for word in ["TEXTS", "NUMBERS"] {
        out = respell(&out, word, |list| format!("(SELECT value FROM json_each({list}))"));
    }
    // Neither `NOT INDEXED` nor a plus sign keeps SQLite from a covering index; a column that no index holds does. Its
    // type is asked for because a damaged row may hold anything, and must be counted all the same. What stands in a CASE
    // says nothing of NULL, which would allow a partial index.
    out = respell(&out, "UNINDEXED", |columns| {
        let (column, other) = columns.split_once(';').unwrap_or((columns, columns));
        format!("CASE WHEN typeof({}) <> '' THEN {column} END", other.trim())
    });
    for number in 1..=params {
        out = out.replace(&format!("${number}"), &format!("?{number}"));
    }
    Translated { sql: out.replace(":now", &format!("?{}", params + 1)), params, clock }
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

/// Runs one statement to its end.
pub(super) fn run(
    connection: &Connection,
    dialect: &mut Dialect,
    statement: &Statement,
    now: Timestamp,
) -> Result<Answer, rusqlite::Error> {
    let translated = dialect.of(statement.sql);
    let mut prepared = connection.prepare_cached(&translated.sql)?;
    for (position, value) in statement.params.iter().take(translated.params).enumerate() {
        prepared.raw_bind_parameter(position + 1, value)?;
    }
    if let Some(position) = translated.clock {
        prepared.raw_bind_parameter(position, now.millis())?;
    }
    let columns = prepared.column_count();
    if columns == 0 {
        return Ok(Answer { rows: Vec::new(), changed: prepared.raw_execute()? });
    }
    let mut rows = Vec::new();
    let mut cursor = prepared.raw_query();
    while let Some(row) = cursor.next()? {
        let values = (0..columns).map(|column| row.get_ref(column).and_then(|v| owned(column, v)));
        rows.push(Row(values.collect::<Result<_, _>>()?));
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

/// Names a database error by what a caller can do, and notes where it says that the database is damaged.
pub(super) fn judge(condition: &Condition, error: rusqlite::Error) -> Error {
    if is_damage(&error) {
        condition.damage(&error.to_string());
    }
    translate(error)
}

/// Whether an error means that the database cannot be read or written as it should. A full disk is none.
fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        // A value that no statement of ours can have written.
        rusqlite::Error::Utf8Error(..) | rusqlite::Error::InvalidColumnType(..) => true,
        rusqlite::Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt => true,
            ErrorCode::SystemIoFailure => DAMAGED_IO.contains(&failure.extended_code),
            _ => false,
        },
        _ => false,
    }
}

/// Reading, reading less than there should be, writing, and syncing. A write for which the disk is full has a code of
/// its own; what fails beside the database (shared memory, locks) leaves it whole.
const DAMAGED_IO: [i32; 4] =
    [ffi::SQLITE_IOERR_READ, ffi::SQLITE_IOERR_SHORT_READ, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_FSYNC];

/// Names a database error by what a caller can do.
#[expect(clippy::needless_pass_by_value, reason = "the shape that `map_err` takes")]
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
    use super::to_sqlite;

    #[test]
    fn parameters_keep_their_numbers_whatever_comes_first() {
        let translated = to_sqlite("SELECT :now, $2, $1, '$[0]' /*lock*/");
        assert_eq!(translated.sql, "SELECT ?3, ?2, ?1, '$[0]' ");
        assert_eq!((translated.params, translated.clock), (2, Some(3)));
        assert_eq!(to_sqlite("SELECT $10").params, 10);
    }
}
