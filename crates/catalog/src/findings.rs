//! Findings: conditions that an operator must resolve. The units that detect them write the rows; this file reads them.

use std::sync::LazyLock;

use s3o_model::clock::Timestamp;

use crate::copies::{HAS_NO_GOOD_COPY, NO_GOOD_COPY};
use crate::error::Error;
use crate::unit::Row;
use crate::{Catalog, params};

/// A condition that an operator must resolve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Newer findings have higher IDs.
    pub id: i64,
    /// Such as `written_off`.
    pub kind: String,
    /// Empty for a finding that is not about a backend.
    pub backend: String,
    /// The physical key, or another name of the subject.
    pub physical_key: String,
    /// What it names under the key: a `Target` of the model as stored.
    pub target: String,
    /// Length of the affected bytes; 0 if there are none.
    pub size_bytes: u64,
    /// Text or JSON, depending on the kind.
    pub detail: String,
    /// By the catalog's clock.
    pub created_at: Timestamp,
    /// Number of valid passes of reconcile that saw it as it is; 0 if no pass reports it.
    pub passes: u64,
    /// Cut-off of the first of these passes.
    pub first_seen_at: Option<Timestamp>,
    /// Cut-off of the last of them.
    pub seen_at: Option<Timestamp>,
    /// An operator approved it, alone or with everything that its pass found.
    pub is_approved: bool,
    /// An operator wants to keep it as it is.
    pub is_dismissed: bool,
}

/// Which findings are wanted; `None` selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FindingSelection {
    /// Only those about this backend.
    pub backend: Option<String>,
    /// Only those of this kind.
    pub kind: Option<String>,
}

fn finding(row: &Row) -> Result<Finding, Error> {
    Ok(Finding {
        id: row.int("id")?,
        kind: row.string("kind")?,
        backend: row.string("backend_name")?,
        physical_key: row.string("physical_key")?,
        target: row.string("target")?,
        size_bytes: row.size("size_bytes")?,
        detail: row.string("detail")?,
        created_at: row.time("created_at")?,
        passes: row.size("passes")?,
        first_seen_at: row.opt_time("first_seen_at")?,
        seen_at: row.opt_time("seen_at")?,
        is_approved: row.int("approved")? == 1,
        is_dismissed: row.int("dismissed")? == 1,
    })
}

/// A worker removes the finding of content that is good again or gone; until then it is not shown.
static HOLDS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "(kind <> '{NO_GOOD_COPY}' OR EXISTS (SELECT 1 FROM contents c WHERE c.id = findings.physical_key \
         AND {HAS_NO_GOOD_COPY}))"
    )
});

impl Catalog {
    /// A page of findings with numbers above `after`, in ascending order.
    pub async fn findings(&self, which: &FindingSelection, after: i64, limit: usize) -> Result<Vec<Finding>, Error> {
        static PAGE: LazyLock<String> = LazyLock::new(|| {
            format!(
                "SELECT id, kind, backend_name, physical_key, target, size_bytes, detail, created_at, \
                 passes, first_seen_at, seen_at, dismissed, CASE WHEN approved = 1 OR (pass_id IS NOT NULL AND id <= \
                 (SELECT b.approved_finding FROM backends b WHERE b.name = findings.backend_name)) THEN 1 ELSE 0 END \
                 AS approved FROM findings WHERE id > $1 AND (CAST($2 AS TEXT) IS NULL OR backend_name = $2) \
                 AND (CAST($3 AS TEXT) IS NULL OR kind = $3) AND {} ORDER BY id LIMIT $4",
                *HOLDS
            )
        });
        let params = params![after, which.backend.as_deref(), which.kind.as_deref(), limit];
        self.survey(&PAGE, params).await?.iter().map(finding).collect()
    }
}
