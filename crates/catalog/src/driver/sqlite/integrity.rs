//! The integrity check of SQLite: one quick pass over the page structure, then the content table by table. Each table
//! has a snapshot of its own, so that checkpoints can go on meanwhile.

use std::path::Path;

use rusqlite::Connection;

use super::open::connect;
use super::statement::translate;
use crate::error::Error;

const FAULTS_MAX: usize = 5;

/// Faults of a database, at most [`FAULTS_MAX`].
pub(super) fn check(path: &Path) -> Result<Vec<String>, Error> {
    let connection = connect(path)?;
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -8192;").map_err(translate)?;
    // Only a check of the whole database finds pages that two tables share, that no table uses, or that are wrongly
    // free.
    let mut faults = run_pragma(&connection, "quick_check", &FAULTS_MAX.to_string(), "database")?;
    for table in tables(&connection)? {
        for pragma in ["integrity_check", "foreign_key_check"] {
            faults.extend(run_pragma(&connection, pragma, &format!("'{table}'"), &table)?);
        }
        if faults.len() >= FAULTS_MAX {
            break;
        }
    }
    faults.extend(miscounted(&connection)?);
    faults.truncate(FAULTS_MAX);
    Ok(faults)
}

/// Indexes whose number of entries differs from the number of rows. SQLite's own check does not count the entries of
/// partial indexes, and it does not find every unreadable page.
fn miscounted(connection: &Connection) -> Result<Vec<String>, Error> {
    let sql = "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL";
    let mut statement = connection.prepare(sql).map_err(translate)?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).map_err(translate)?;
    let indexes: Vec<(String, String, String)> = found.collect::<Result<_, _>>().map_err(translate)?;
    let count = |from: &str| {
        connection.query_row(&format!("SELECT count(*) FROM {from}"), [], |row| row.get::<_, i64>(0)).map_err(translate)
    };
    let mut faults = Vec::new();
    for (index, table, sql) in indexes {
        let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
        let condition = sql.split_once(") WHERE ").map_or("1", |(_, condition)| condition);
        let entries = count(&format!("{table} INDEXED BY {index} WHERE {condition}"))?;
        // In a CASE, the condition does not prove that the partial index is complete, so SQLite does not use it.
        let rows = count(&format!("{table} WHERE CASE WHEN {condition} THEN 1 ELSE 0 END = 1"))?;
        if entries != rows {
            faults.push(format!("{table}: index {index} has {entries} entries for {rows} rows"));
        }
    }
    Ok(faults)
}

fn tables(connection: &Connection) -> Result<Vec<String>, Error> {
    let sql = "SELECT 'sqlite_schema' UNION ALL \
         SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut statement = connection.prepare(sql).map_err(translate)?;
    let names = statement.query_map([], |row| row.get(0)).map_err(translate)?;
    names.collect::<Result<_, _>>().map_err(translate)
}

fn run_pragma(connection: &Connection, pragma: &str, argument: &str, name: &str) -> Result<Vec<String>, Error> {
    let mut statement = connection.prepare(&format!("PRAGMA {pragma}({argument})")).map_err(translate)?;
    let answers = statement.query_map([], |row| match row.get_ref(0)?.as_str() {
        Ok("ok") => Ok(None),
        Ok(text) if pragma != "foreign_key_check" => Ok(Some(format!("{name}: {text}"))),
        Ok(_) | Err(_) => Ok(Some(format!("{name}: a row refers to a missing row"))),
    });
    let faults: Vec<Option<String>> =
        answers.map_err(translate)?.take(FAULTS_MAX + 1).collect::<Result<_, _>>().map_err(translate)?;
    Ok(faults.into_iter().flatten().collect())
}
