//! The rows that a walk over a backend compares with its listing: those that name bytes, and findings of passes.

use std::sync::LazyLock;

use s3o_model::names::BackendName;
use s3o_model::verify::{NamedBy, NamingRow};

use super::naming::{NAMING, Naming};
use super::{BEYOND, naming_row};
use crate::error::Error;
use crate::unit::{Row, json};
use crate::{Catalog, params};

/// SQL that selects all rows on backend `$1` whose key satisfies a condition.
fn compared(keys: &str) -> String {
    let naming = NAMING.iter().map(|Naming { table, only, kind, target, compared: [size, verified], .. }| {
        format!(
            "SELECT physical_key, {kind} AS kind, {size} AS size_bytes, {target} AS target, {verified} AS verified_at, \
             '' AS fingerprint, 0 AS dismissed FROM {table} WHERE backend_name = $1 AND {keys} AND {only}"
        )
    });
    let found = format!(
        "SELECT physical_key, kind, size_bytes, target, CAST(NULL AS BIGINT) AS verified_at, fingerprint, dismissed \
         FROM findings WHERE backend_name = $1 AND {keys} AND pass_id IS NOT NULL AND kind <> 'held'"
    );
    naming.chain([found]).collect::<Vec<_>>().join(" UNION ALL ")
}

static OF_KEYS: LazyLock<String> = LazyLock::new(|| compared("physical_key IN TEXTS($2)"));

static BETWEEN: LazyLock<String> = LazyLock::new(|| {
    let rows = compared("physical_key > $2 AND physical_key <= $3");
    format!("{rows} ORDER BY physical_key LIMIT $4")
});

fn compared_row(row: &Row) -> Result<NamingRow, Error> {
    let dismissed = row.int("dismissed")? == 1;
    let known = row.text("kind")?.parse().ok().map(|kind| NamedBy::Finding { kind, dismissed });
    let naming = NamingRow {
        verified_at: row.opt_time("verified_at")?,
        fingerprint: row.string("fingerprint")?,
        ..naming_row(row, known)?
    };
    Ok(naming)
}

impl Catalog {
    /// Every row that names one of these keys, and findings of passes about them, in one snapshot.
    pub async fn naming_rows(&self, backend: &BackendName, keys: &[&str]) -> Result<Vec<NamingRow>, Error> {
        self.survey(&OF_KEYS, params![backend, json(&keys)]).await?.iter().map(compared_row).collect()
    }

    /// The same for the keys after the first one and up to the second one, in their order, at most `limit`. Fails if
    /// the catalog is damaged: a missing row would make its bytes a finding.
    pub async fn rows_between(
        &self,
        backend: &BackendName,
        (after, upto): (&str, Option<&str>),
        limit: usize,
    ) -> Result<Vec<NamingRow>, Error> {
        let values = params![backend, after, upto.unwrap_or(BEYOND), limit];
        self.read(&BETWEEN, values).await?.iter().map(compared_row).collect()
    }
}
