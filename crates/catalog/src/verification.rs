//! Queries that check rows against each other, and find the rows that name bytes of a backend.
//!
//! Nothing here writes or locks.

mod checks;
mod compared;
mod confirmed;
mod naming;

use std::collections::HashSet;

use s3o_model::names::BackendName;
use s3o_model::verify::{NamedBy, NamingRow};

pub(crate) use checks::SHOWN;
pub use checks::{Check, Cursor, checks, lost_contents};
#[cfg(test)]
pub(crate) use naming::NAMED_BY_TABLE;
pub(crate) use naming::{DRIFTED, nothing_names, nothing_names_draft};

use crate::cleanups::target;
use crate::error::Error;
use crate::unit::{Row, Value, json};
use crate::{Catalog, params};

/// Greater than every key, also of objects that are not s3o's.
const BEYOND: &str = "\u{10FFFF}";

/// Values of a backend that change with every write and delete.
#[derive(Debug, Clone, PartialEq)]
pub struct Pulse {
    /// True while writes or deletes are under way, so that stored and counted bytes may differ.
    pub unsettled: bool,
    /// The bytes that the backend stores when nothing is under way.
    pub bytes: u64,
    newest: (Value, Value),
}

/// `found` is the finding that the row is, if it is one.
fn naming_row(row: &Row, found: Option<NamedBy>) -> Result<NamingRow, Error> {
    let by = match row.text("kind")? {
        "location" => NamedBy::Location { lost: false },
        "lost" => NamedBy::Location { lost: true },
        "intent" => NamedBy::Intent,
        "cleanup" => NamedBy::Cleanup,
        "dead_letter" => NamedBy::DeadLetter,
        "written_off" => NamedBy::WrittenOff,
        other => found.ok_or_else(|| Error::Internal(format!("unknown kind of row {other:?}")))?,
    };
    Ok(NamingRow {
        physical_key: row.string("physical_key")?,
        by,
        size_bytes: row.size("size_bytes")?,
        target: target(row)?,
        verified_at: None,
        fingerprint: String::new(),
    })
}

fn texts<T: FromIterator<String>>(rows: &[Row], column: &str) -> Result<T, Error> {
    rows.iter().map(|row| row.string(column)).collect()
}

impl Catalog {
    /// The end of the next page of a check; `None` after the last row.
    pub async fn page_end(&self, check: &'static Check, after: &Cursor, rows: usize) -> Result<Option<Cursor>, Error> {
        let found = self.survey(check.page(), Check::step(after, rows)).await?;
        Ok(found.into_iter().next().map(|row| Cursor(row.values)))
    }

    /// Descriptions of the rows between two cursors that violate a check, in one snapshot.
    pub async fn broken(&self, check: &'static Check, after: &Cursor, upto: &Cursor) -> Result<Vec<String>, Error> {
        texts(&self.survey(&check.broken, Check::span(after, upto)).await?, SHOWN)
    }

    /// Faults that the database's own integrity check finds. The first one marks the catalog as damaged.
    pub async fn check_integrity(&self) -> Result<Vec<String>, Error> {
        let faults = self.driver.check_integrity().await?;
        if let Some(fault) = faults.first() {
            self.condition.damage(&format!("the integrity check failed: {fault}"));
        }
        Ok(faults)
    }

    /// Descriptions of quota counters that differ from the sums of their rows, in one snapshot.
    pub async fn drifted(&self) -> Result<Vec<String>, Error> {
        texts(&self.survey(&naming::DRIFTED, vec![]).await?, SHOWN)
    }

    /// Those of `ids` that end the physical key of an intent, a cleanup, a dead letter or a written-off finding.
    pub async fn named_identifiers(&self, backend: &BackendName, ids: &[&str]) -> Result<HashSet<String>, Error> {
        texts(&self.survey(&naming::IDENTIFIED, params![backend, json(&ids)]).await?, "identifier")
    }

    /// If two pulses are equal and settled, nothing changed on the backend between them.
    pub async fn pulse(&self, backend: &BackendName) -> Result<Pulse, Error> {
        let rows = self.survey(&naming::PULSE, params![backend]).await?;
        let row = &rows[0];
        let newest = (row.value("newest_content")?.clone(), row.value("newest_condemned")?.clone());
        Ok(Pulse { unsettled: row.int("unsettled")? == 1, bytes: row.size("bytes")?, newest })
    }
}
