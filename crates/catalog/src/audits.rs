//! What the catalog says twice is compared: books with the rows they sum up, counts with the rows
//! that refer.
//!
//! A unit changes rows and their sum together, so what one statement finds between them is the same
//! in every snapshot: it is applied as a difference, and nothing that others do meanwhile is lost.

use std::sync::LazyLock;

use async_trait::async_trait;
use s3o_model::cleanup::Reason;
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;

use crate::error::{Error, Verdict};
use crate::release::{NONE, Release, Selector};
use crate::unit::{Row, Unit, json};
use crate::{Catalog, params};

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

    /// Counts again, holding the contents; those that were wrong are returned. Nothing is condemned
    /// and nothing comes back: a count is only a count.
    async fn recount(&self, contents: &[ContentId]) -> Result<Vec<Recounted>, Error>;

    /// Condemns those of the contents that still are without a reference, by count and by rows.
    async fn condemn_unreferenced(&self, contents: &[ContentId]) -> Result<Vec<CondemnedPlace>, Error>;
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

/// How many rows refer to content `c`.
macro_rules! referring {
    () => {
        "(SELECT count(*) FROM objects WHERE content_id = c.id) \
         + (SELECT count(*) FROM multipart_parts WHERE content_id = c.id) \
         + (SELECT count(*) FROM content_parts WHERE whole_id = c.id) \
         + (SELECT count(*) FROM pending_objects WHERE pin_content_id = c.id)"
    };
}

/// One reference for every row of a table that names content of the page.
macro_rules! references {
    ($column:literal, $table:literal) => {
        concat!(
            " UNION ALL SELECT ",
            $column,
            ", NULL, NULL, 1 FROM ",
            $table,
            " WHERE ",
            $column,
            " > $1 AND ",
            $column,
            " <= (SELECT max(id) FROM page)"
        )
    };
}

/// Contents and references are read side by side, in the order of contents, so that a page costs what
/// it holds: a count per content is a search per content, and a bad guess of a planner a scan. The last
/// row tells how far the page goes.
const COUNTS: &str = concat!(
    "WITH page AS MATERIALIZED (SELECT id, ref_count, state FROM contents WHERE id > $1 ORDER BY id LIMIT $2), \
     said AS (SELECT id, ref_count, state, 0 AS one FROM page",
    references!("content_id", "objects"),
    references!("content_id", "multipart_parts"),
    references!("whole_id", "content_parts"),
    references!("pin_content_id", "pending_objects"),
    ") SELECT id, max(ref_count), sum(one) FROM said GROUP BY id \
     HAVING max(ref_count) <> sum(one) OR (sum(one) = 0 AND max(state) = 'live') \
     UNION ALL SELECT max(id), count(*), NULL FROM page"
);

const RECOUNT: &str = concat!(
    "UPDATE contents SET ref_count = s.n FROM (SELECT c.id AS found, ",
    referring!(),
    " AS n FROM contents c WHERE c.id IN TEXTS($1)) s WHERE s.found = contents.id AND ref_count <> s.n \
     RETURNING id, ref_count"
);

static UNREFERENCED: LazyLock<Release> = LazyLock::new(|| {
    Release::of(&Selector {
        referrers: "contents WHERE id IN TEXTS($1) AND ref_count = 0",
        column: "id",
        dying_objects: NONE,
        dying_pieces: NONE,
        dying_parts: NONE,
        dying_pins: NONE,
    })
});

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

impl CountPage {
    fn add(&mut self, row: &Row) -> Result<(), Error> {
        let counted = row.int(1)?;
        match row.opt_int(2)? {
            None => (self.last, self.seen) = (row.opt_text(0)?.map(|_| row.parse(0)).transpose()?, row.size(1)?),
            Some(found) if found == counted => self.unreferenced.push(row.parse(0)?),
            Some(_) => self.miscounted.push(row.parse(0)?),
        }
        Ok(())
    }
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
        let after = after.map(|content| content.to_string()).unwrap_or_default();
        let mut page = CountPage::default();
        for row in self.scan(COUNTS, params![after, limit]).await? {
            page.add(&row)?;
        }
        Ok(page)
    }

    async fn recount(&self, contents: &[ContentId]) -> Result<Vec<Recounted>, Error> {
        let list = params![json(&contents)];
        let mut unit = Unit::new("recount");
        // Who changes a count holds its content: what is counted below is what everybody else has done.
        let held =
            unit.run("SELECT id, ref_count FROM contents WHERE id IN TEXTS($1) ORDER BY id /*lock*/", list.clone());
        let put_right = unit.run(RECOUNT, list);
        let answers = self.write(unit).await?;
        let before = answers[held].rows.iter().map(|row| Ok((row.text(0)?, row.int(1)?)));
        let before = before.collect::<Result<std::collections::HashMap<_, _>, Error>>()?;
        let recounted = |row: &Row| {
            let to = row.int(1)?;
            let from = before.get(row.text(0)?).copied().unwrap_or(to);
            Ok(Recounted { content: row.parse(0)?, from, to })
        };
        answers[put_right].rows.iter().map(recounted).collect()
    }

    async fn condemn_unreferenced(&self, contents: &[ContentId]) -> Result<Vec<CondemnedPlace>, Error> {
        let list = params![json(&contents)];
        let mut unit = Unit::new("condemn_unreferenced");
        UNREFERENCED.lock(&mut unit, &list);
        let before = unit.run(
            "SELECT c.id, l.backend_name, l.physical_key, l.size_bytes FROM contents c \
             LEFT JOIN object_locations l ON l.content_id = c.id \
             WHERE c.id IN TEXTS($1) AND c.ref_count = 0 AND c.state = 'live'",
            list.clone(),
        );
        UNREFERENCED.condemn(&mut unit, &list, Reason::Delete);
        let after = unit.run("SELECT id FROM contents WHERE id IN TEXTS($1) AND state = 'condemned'", list);
        let answers = self.write(unit).await?;
        let condemned = answers[after].rows.iter().map(|row| row.text(0));
        let condemned = condemned.collect::<Result<std::collections::HashSet<_>, Error>>()?;
        let places = answers[before].rows.iter().filter(|row| row.text(0).is_ok_and(|id| condemned.contains(id)));
        places.map(condemned_place).collect()
    }
}

fn condemned_place(row: &Row) -> Result<CondemnedPlace, Error> {
    let place = match row.opt_text(1)? {
        Some(_) => Some((row.parse(1)?, row.text(2)?.to_owned(), row.size(3)?)),
        None => None,
    };
    Ok(CondemnedPlace { content: row.parse(0)?, place })
}
