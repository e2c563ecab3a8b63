//! Looking whether the rows agree with each other, and which rows name what a backend shows.
//!
//! Nothing here writes or locks.

mod checks;
mod naming;

use std::collections::HashSet;

use async_trait::async_trait;
use s3o_model::cleanup::BackendUpload;
use s3o_model::names::BackendName;
use s3o_model::verify::{NamedBy, NamingRow};

pub use checks::{Check, Cursor, checks};
pub(crate) use naming::DRIFTED;

use crate::error::Error;
use crate::unit::{Row, Value, json};
use crate::{Catalog, params};

/// Greater than every physical key: those begin with the name of a bucket.
const BEYOND: &str = "\u{10FFFF}";

/// What changes when anything changes on a backend, as the catalog sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Pulse {
    /// Whether bytes may be there that the books hold otherwise: writes or deletes under way.
    pub unsettled: bool,
    /// The bytes that should be there at rest.
    pub bytes: u64,
    newest: (Value, Value),
}

/// What can be checked while everything goes on.
#[async_trait]
pub trait Verification: Send + Sync {
    /// The end of the next page that a check looks at; none behind the last row.
    async fn page_end(&self, check: &'static Check, after: &Cursor, rows: usize) -> Result<Option<Cursor>, Error>;

    /// What breaks a check between two places, as of one moment.
    async fn broken(&self, check: &'static Check, after: &Cursor, upto: &Cursor) -> Result<Vec<String>, Error>;

    /// Faults that the database's own check finds.
    async fn integrity(&self) -> Result<Vec<String>, Error>;

    /// Counters that differ from the sums of their rows, as of one moment.
    async fn drifted(&self) -> Result<Vec<String>, Error>;

    /// Every row that names one of these keys, as of one moment.
    async fn naming_rows(&self, backend: &BackendName, keys: &[&str]) -> Result<Vec<NamingRow>, Error>;

    /// Those of these identifiers that intents and cleanups name.
    async fn named_identifiers(&self, backend: &BackendName, ids: &[&str]) -> Result<HashSet<String>, Error>;

    /// The keys of locations that are not lost, behind `after` and up to `upto`, by key.
    async fn located_keys(
        &self,
        backend: &BackendName,
        after: &str,
        upto: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, Error>;

    /// What changes when anything changes on a backend.
    async fn pulse(&self, backend: &BackendName) -> Result<Pulse, Error>;
}

fn naming_row(row: &Row) -> Result<NamingRow, Error> {
    let by = match row.text(1)? {
        "location" => NamedBy::Location { lost: false },
        "lost" => NamedBy::Location { lost: true },
        "intent" => NamedBy::Intent,
        "cleanup" => NamedBy::Cleanup,
        "dead_letter" => NamedBy::DeadLetter,
        "written_off" => NamedBy::WrittenOff,
        other => return Err(Error::Internal(format!("no row is of the kind {other}"))),
    };
    Ok(NamingRow {
        physical_key: row.text(0)?.to_owned(),
        by,
        size_bytes: row.size(2)?,
        upload: BackendUpload::from_column(row.opt_text(3)?.map(str::to_owned)),
    })
}

fn texts(rows: &[Row]) -> Result<Vec<String>, Error> {
    rows.iter().map(|row| row.text(0).map(str::to_owned)).collect()
}

#[async_trait]
impl Verification for Catalog {
    async fn page_end(&self, check: &'static Check, after: &Cursor, rows: usize) -> Result<Option<Cursor>, Error> {
        let found = self.survey(check.page(), Check::step(after, rows)).await?;
        Ok(found.into_iter().next().map(|row| Cursor(row.0)))
    }

    async fn broken(&self, check: &'static Check, after: &Cursor, upto: &Cursor) -> Result<Vec<String>, Error> {
        texts(&self.survey(&check.broken, Check::span(after, upto)).await?)
    }

    async fn integrity(&self) -> Result<Vec<String>, Error> {
        self.driver.check_integrity().await
    }

    async fn drifted(&self) -> Result<Vec<String>, Error> {
        texts(&self.survey(&naming::DRIFTED, vec![]).await?)
    }

    async fn naming_rows(&self, backend: &BackendName, keys: &[&str]) -> Result<Vec<NamingRow>, Error> {
        self.survey(&naming::NAMED, params![backend, json(&keys)]).await?.iter().map(naming_row).collect()
    }

    async fn named_identifiers(&self, backend: &BackendName, ids: &[&str]) -> Result<HashSet<String>, Error> {
        let rows = self.survey(&naming::IDENTIFIED, params![backend, json(&ids)]).await?;
        Ok(texts(&rows)?.into_iter().collect())
    }

    async fn located_keys(
        &self,
        backend: &BackendName,
        after: &str,
        upto: Option<&str>,
        limit: usize,
    ) -> Result<Vec<String>, Error> {
        const SQL: &str = "SELECT physical_key FROM object_locations WHERE backend_name = $1 \
             AND physical_key > $2 AND physical_key <= $3 AND state <> 'lost' ORDER BY physical_key LIMIT $4";
        texts(&self.survey(SQL, params![backend, after, upto.unwrap_or(BEYOND), limit]).await?)
    }

    async fn pulse(&self, backend: &BackendName) -> Result<Pulse, Error> {
        let rows = self.survey(&naming::PULSE, params![backend]).await?;
        let row = &rows[0];
        let newest = (row.0[2].clone(), row.0[3].clone());
        Ok(Pulse { unsettled: row.int(0)? == 1, bytes: row.size(1)?, newest })
    }
}
