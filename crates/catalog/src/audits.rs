//! Comparison of redundant data: quota counters with the sums of their rows, reference counts with the referring rows.
//!
//! A unit changes rows and their counter together, so a difference that one statement finds is the same in every
//! snapshot. A repair adds the difference, so that changes of other units in the meantime are not lost.

mod counts;
mod unreferenced;

use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;

use crate::error::{Error, Verdict};
use crate::unit::{Row, Unit};
use crate::{Catalog, params};

#[cfg(test)]
pub(crate) use counts::BY_TABLE;
pub use counts::Confirmed;

/// Quota counters of one stripe and the sums of its rows, as (counter, sum).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedStripe {
    /// Backend of the counters.
    pub backend: BackendName,
    /// Stripe of the counters.
    pub stripe: u64,
    /// Bytes in locations.
    pub used: (i64, i64),
    /// Bytes of cleanups and dead letters.
    pub orphan: (i64, i64),
    /// Bytes reserved by intents.
    pub reserved: (i64, i64),
    /// Number of earlier repairs; the repair fails if it changed.
    repairs: i64,
}

/// A page of checked contents, and those whose count is wrong or that have no reference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountPage {
    /// The last content of the page; `None` after the end.
    pub last: Option<ContentId>,
    /// Number of contents in the page.
    pub seen: u64,
    /// Contents whose count differs from the rows.
    pub miscounted: Vec<ContentId>,
    /// Live contents with a count of zero and no referring row.
    pub unreferenced: Vec<ContentId>,
}

/// A reference count that was repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recounted {
    /// Live or condemned.
    pub content: ContentId,
    /// Count before the repair.
    pub from: i64,
    /// Count after the repair.
    pub to: i64,
}

/// Condemned content with one of its locations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CondemnedPlace {
    /// Appears once for each location.
    pub content: ContentId,
    /// Backend, physical key and size; `None` for content without locations.
    pub place: Option<(BackendName, String, u64)>,
}

const QUOTAS: &str = "SELECT backend_name, stripe, max(repairs) AS repairs, \
     CAST(sum(c_used) AS BIGINT) AS counted_used, CAST(sum(c_orphan) AS BIGINT) AS counted_orphan, \
     CAST(sum(c_reserved) AS BIGINT) AS counted_reserved, CAST(sum(used) AS BIGINT) AS found_used, \
     CAST(sum(orphan) AS BIGINT) AS found_orphan, CAST(sum(reserved) AS BIGINT) AS found_reserved FROM (\
     SELECT backend_name, stripe, repairs, used_bytes AS c_used, orphan_bytes AS c_orphan, \
       reserved_bytes AS c_reserved, 0 AS used, 0 AS orphan, 0 AS reserved FROM backend_quotas \
     UNION ALL SELECT backend_name, stripe, 0, 0, 0, 0, size_bytes, 0, 0 FROM object_locations \
     UNION ALL SELECT backend_name, stripe, 0, 0, 0, 0, 0, size_bytes, 0 FROM cleanup_queue \
     UNION ALL SELECT backend_name, stripe, 0, 0, 0, 0, 0, size_bytes, 0 FROM cleanup_dlq \
     UNION ALL SELECT backend_name, stripe, 0, 0, 0, 0, 0, 0, size_bytes FROM pending_objects \
       WHERE backend_name IS NOT NULL) AS entries GROUP BY backend_name, stripe ORDER BY backend_name, stripe";

impl AuditedStripe {
    /// Each column of `backend_quotas` with its value and the sum of its rows.
    #[must_use]
    pub fn counters(&self) -> [(&'static str, (i64, i64)); 3] {
        [("used_bytes", self.used), ("orphan_bytes", self.orphan), ("reserved_bytes", self.reserved)]
    }

    /// Sum of the absolute differences, in bytes.
    #[must_use]
    pub fn drift_bytes(&self) -> u64 {
        self.counters().iter().map(|(_, (counted, found))| found.abs_diff(*counted)).sum()
    }
}

fn audited_stripe(row: &Row) -> Result<AuditedStripe, Error> {
    Ok(AuditedStripe {
        backend: row.parse("backend_name")?,
        stripe: row.size("stripe")?,
        repairs: row.int("repairs")?,
        used: (row.int("counted_used")?, row.int("found_used")?),
        orphan: (row.int("counted_orphan")?, row.int("found_orphan")?),
        reserved: (row.int("counted_reserved")?, row.int("found_reserved")?),
    })
}

impl Catalog {
    /// All quota counters with the sums of their rows, in one snapshot.
    pub async fn audit_quotas(&self) -> Result<Vec<AuditedStripe>, Error> {
        self.scan(QUOTAS, vec![]).await?.iter().map(audited_stripe).collect()
    }

    /// Adds the differences to the counters; `false` if another instance repaired them since the audit.
    pub async fn repair_quotas(&self, found: &AuditedStripe) -> Result<bool, Error> {
        let [used, orphan, reserved] = found.counters().map(|(_, (counted, found))| found - counted);
        let mut unit = Unit::new("repair_quotas");
        unit.one(
            "UPDATE backend_quotas SET used_bytes = used_bytes + $3, orphan_bytes = orphan_bytes + $4, \
             reserved_bytes = reserved_bytes + $5, repairs = repairs + 1 \
             WHERE backend_name = $1 AND stripe = $2 AND repairs = $6",
            params![&found.backend, found.stripe, used, orphan, reserved, found.repairs],
            Verdict::RunAgain,
        );
        match self.write(unit).await {
            Ok(_) => Ok(true),
            Err(Error::Guard(Verdict::RunAgain)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Compares the counts of the `limit` contents after `after` with the referring rows, in one snapshot.
    pub async fn audit_counts(&self, after: Option<ContentId>, limit: usize) -> Result<CountPage, Error> {
        counts::page(self, after, limit).await
    }

    /// Counts the rows that refer to each of these contents twice in one snapshot: through the indexes, and by reading
    /// each referring table once. If an index differs from its table, the catalog is marked as damaged.
    pub async fn confirm_suspects(&self, contents: &[ContentId]) -> Result<Vec<Confirmed>, Error> {
        counts::confirm(self, contents).await
    }

    /// Repairs counts that did not change since they were confirmed, and returns those. It neither condemns content nor
    /// makes condemned content live.
    pub async fn recount(&self, suspects: &[Confirmed]) -> Result<Vec<Recounted>, Error> {
        counts::recount(self, suspects).await
    }

    /// Condemns the contents that have no reference by count, by index and by table.
    pub async fn condemn_unreferenced(&self, suspects: &[Confirmed]) -> Result<Vec<CondemnedPlace>, Error> {
        unreferenced::condemn(self, suspects).await
    }

    /// Inserts the finding that an audit had too many suspects and repaired none; zero deletes it.
    pub async fn note_suspects(&self, suspects: u64) -> Result<(), Error> {
        unreferenced::note(self, suspects).await
    }
}
