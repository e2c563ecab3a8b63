//! Findings: conditions that an operator must resolve. The units that detect them write the rows; this file reads them.

use async_trait::async_trait;
use s3o_model::clock::Timestamp;

use crate::error::Error;
use crate::objects::moment;
use crate::unit::Row;
use crate::{Catalog, params};

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Its number; newer ones have higher numbers.
    pub id: i64,
    /// What was found, such as `written_off`.
    pub kind: String,
    /// The backend it is about; empty where it is about no backend.
    pub backend: String,
    /// The physical key, or what else names the thing in question.
    pub physical_key: String,
    /// The bytes in question.
    pub size_bytes: u64,
    /// What was seen, in words or as JSON.
    pub detail: String,
    /// When it was written.
    pub created_at: Timestamp,
}

/// Which findings are wanted; `None` selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FindingSelection {
    /// Only those about this backend.
    pub backend: Option<String>,
    /// Only those of this kind.
    pub kind: Option<String>,
}

/// Reads findings.
#[async_trait]
pub trait Findings: Send + Sync {
    /// A page of findings with numbers above `after`, in ascending order.
    async fn findings(&self, which: &FindingSelection, after: i64, limit: usize) -> Result<Vec<Finding>, Error>;
}

fn finding(row: &Row) -> Result<Finding, Error> {
    Ok(Finding {
        id: row.int(0)?,
        kind: row.text(1)?.to_owned(),
        backend: row.text(2)?.to_owned(),
        physical_key: row.text(3)?.to_owned(),
        size_bytes: row.size(4)?,
        detail: row.text(5)?.to_owned(),
        created_at: moment(row, 6)?,
    })
}

#[async_trait]
impl Findings for Catalog {
    async fn findings(&self, which: &FindingSelection, after: i64, limit: usize) -> Result<Vec<Finding>, Error> {
        const PAGE: &str = "SELECT id, kind, backend_name, physical_key, size_bytes, detail, created_at FROM findings \
             WHERE id > $1 AND (CAST($2 AS TEXT) IS NULL OR backend_name = $2) \
             AND (CAST($3 AS TEXT) IS NULL OR kind = $3) ORDER BY id LIMIT $4";
        let params = params![after, which.backend.as_deref(), which.kind.as_deref(), limit];
        self.survey(PAGE, params).await?.iter().map(finding).collect()
    }
}
