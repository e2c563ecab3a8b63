//! What the catalog says twice is compared: books with the rows they sum up, counts with the rows
//! that refer.
//!
//! A unit changes rows and their sum together, so what one statement finds between them is the same
//! in every snapshot: it is applied as a difference, and nothing that others do meanwhile is lost.

mod counts;
mod unreferenced;

use async_trait::async_trait;
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;

use crate::error::{Error, Verdict};
use crate::unit::{Row, Unit};
use crate::{Catalog, Integrity, params};

#[cfg(test)]
pub(crate) use counts::BY_TABLE;
pub use counts::Confirmed;

/// One stripe of a backend's books beside the sums of its rows, as (booked, found).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booked {
    /// The backend.
    pub backend: BackendName,
    /// The stripe.
    pub stripe: u64,
    /// Bytes in locations.
    pub used: (i64, i64),
    /// Bytes that wait for cleanup.
    pub orphan: (i64, i64),
    /// Bytes reserved by intents.
    pub reserved: (i64, i64),
    /// How often these books were repaired before.
    repairs: i64,
}

/// Contents that were looked at, and those whose count is wrong or that nothing refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CountPage {
    /// The last one looked at.
    pub last: Option<ContentId>,
    /// How many were looked at.
    pub seen: u64,
    /// Whose count differs from the rows.
    pub miscounted: Vec<ContentId>,
    /// What neither a count nor a row says to be in use, and is not condemned either.
    pub unreferenced: Vec<ContentId>,
}

/// A count that was put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recounted {
    /// The content.
    pub content: ContentId,
    /// What was counted.
    pub from: i64,
    /// How many rows refer to it.
    pub to: i64,
}

/// Content that was condemned, and one place where its bytes lie, if it has any of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CondemnedPlace {
    /// The content.
    pub content: ContentId,
    /// Backend, physical key and size.
    pub place: Option<(BackendName, String, u64)>,
}

/// Comparing what is said twice, and putting it right.
#[async_trait]
pub trait Audits: Send + Sync {
    /// All books beside the sums of their rows, in one snapshot.
    async fn audit_books(&self) -> Result<Vec<Booked>, Error>;

    /// Applies what was found, unless somebody else did; says whether it was applied.
    async fn repair_books(&self, found: &Booked) -> Result<bool, Error>;

    /// Compares the counts of the next `limit` contents with the rows that refer, in one snapshot.
    async fn audit_counts(&self, after: Option<ContentId>, limit: usize) -> Result<CountPage, Error>;

    /// Counts the rows that refer to each of these contents twice in one snapshot: through the indexes, and by
    /// reading each referring table once. An index that differs from its table makes the catalog a damaged one.
    async fn confirm_suspects(&self, contents: &[ContentId]) -> Result<Vec<Confirmed>, Error>;

    /// Applies the difference to counts that still are the ones seen; those that were changed are returned. Nothing
    /// is condemned and nothing comes back: a count is only a count.
    async fn recount(&self, suspects: &[Confirmed]) -> Result<Vec<Recounted>, Error>;

    /// Condemns those of the contents that are without a reference by count, by index and by table.
    async fn condemn_unreferenced(&self, suspects: &[Confirmed]) -> Result<Vec<CondemnedPlace>, Error>;

    /// Keeps a finding about an audit with so many suspects that none was repaired; zero removes it.
    async fn note_suspects(&self, suspects: u64) -> Result<(), Error>;

    /// What is known about the integrity of the catalog: nothing is repaired before its check has passed.
    fn integrity(&self) -> Integrity;
}

const BOOKS: &str = "SELECT backend_name, stripe, max(repairs), \
     CAST(sum(b_used) AS BIGINT), CAST(sum(b_orphan) AS BIGINT), CAST(sum(b_reserved) AS BIGINT), \
     CAST(sum(used) AS BIGINT), CAST(sum(orphan) AS BIGINT), CAST(sum(reserved) AS BIGINT) FROM (\
     SELECT backend_name, stripe, repairs, used_bytes AS b_used, orphan_bytes AS b_orphan, \
       reserved_bytes AS b_reserved, 0 AS used, 0 AS orphan, 0 AS reserved FROM backend_quotas \
     UNION ALL SELECT backend_name, stripe, 0, 0, 0, 0, size_bytes, 0, 0 FROM object_locations \
     UNION ALL SELECT backend_name, stripe, 0, 0, 0, 0, 0, size_bytes, 0 FROM cleanup_queue \
     UNION ALL SELECT backend_name, stripe, 0, 0, 0, 0, 0, size_bytes, 0 FROM cleanup_dlq \
     UNION ALL SELECT backend_name, stripe, 0, 0, 0, 0, 0, 0, size_bytes FROM pending_objects \
       WHERE backend_name IS NOT NULL) AS said GROUP BY backend_name, stripe ORDER BY backend_name, stripe";

impl Booked {
    /// Every counter by its name, with what is booked and what was found.
    #[must_use]
    pub fn counters(&self) -> [(&'static str, (i64, i64)); 3] {
        [("used_bytes", self.used), ("orphan_bytes", self.orphan), ("reserved_bytes", self.reserved)]
    }

    /// By how many bytes the books are wrong, in whichever direction.
    #[must_use]
    pub fn drift_bytes(&self) -> u64 {
        self.counters().iter().map(|(_, (booked, found))| found.abs_diff(*booked)).sum()
    }
}

fn booked(row: &Row) -> Result<Booked, Error> {
    Ok(Booked {
        backend: row.parse(0)?,
        stripe: row.size(1)?,
        repairs: row.int(2)?,
        used: (row.int(3)?, row.int(6)?),
        orphan: (row.int(4)?, row.int(7)?),
        reserved: (row.int(5)?, row.int(8)?),
    })
}

#[async_trait]
impl Audits for Catalog {
    async fn audit_books(&self) -> Result<Vec<Booked>, Error> {
        self.scan(BOOKS, vec![]).await?.iter().map(booked).collect()
    }

    async fn repair_books(&self, found: &Booked) -> Result<bool, Error> {
        let [used, orphan, reserved] = found.counters().map(|(_, (booked, found))| found - booked);
        let mut unit = Unit::new("repair_books");
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

    async fn audit_counts(&self, after: Option<ContentId>, limit: usize) -> Result<CountPage, Error> {
        counts::page(self, after, limit).await
    }

    async fn confirm_suspects(&self, contents: &[ContentId]) -> Result<Vec<Confirmed>, Error> {
        counts::confirm(self, contents).await
    }

    async fn recount(&self, suspects: &[Confirmed]) -> Result<Vec<Recounted>, Error> {
        counts::recount(self, suspects).await
    }

    async fn condemn_unreferenced(&self, suspects: &[Confirmed]) -> Result<Vec<CondemnedPlace>, Error> {
        unreferenced::condemn(self, suspects).await
    }

    async fn note_suspects(&self, suspects: u64) -> Result<(), Error> {
        unreferenced::note(self, suspects).await
    }

    fn integrity(&self) -> Integrity {
        self.condition.integrity()
    }
}
