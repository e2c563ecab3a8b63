//! Reference counts beside the rows that refer: compared page by page, confirmed by reading whole tables, and repaired.
//!
//! A count is lowered only to what an index and the table itself agree on. An index can be damaged and lead to fewer
//! rows than there are; a repair that relied on it would delete bytes that objects refer to.

use std::collections::HashMap;

use s3o_model::ids::ContentId;

use super::{CountPage, Recounted};
use crate::error::Error;
use crate::unit::{Row, Statement, Unit, json};
use crate::{Catalog, params};

/// A content whose count may be wrong, with its references counted in two ways in one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// The content.
    pub content: ContentId,
    /// Its count.
    pub counted: i64,
    /// How many rows refer to it, by the indexes and by the tables, which agree.
    pub found: i64,
}

/// How many rows refer to content `c`, by the indexes.
macro_rules! referring {
    () => {
        "((SELECT count(*) FROM objects WHERE content_id = c.id) \
         + (SELECT count(*) FROM multipart_parts WHERE content_id = c.id) \
         + (SELECT count(*) FROM content_parts WHERE whole_id = c.id) \
         + (SELECT count(*) FROM pending_objects WHERE pin_content_id = c.id))"
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

const BY_INDEX: &str = concat!("SELECT c.id, c.ref_count, ", referring!(), " FROM contents c WHERE c.id IN TEXTS($1)");

/// `UNINDEXED` names the column that is compared and one that no index of the table holds: see the dialects.
pub(crate) const BY_TABLE: &str = "SELECT id, count(*) FROM (\
     SELECT content_id AS id FROM objects WHERE UNINDEXED(content_id; version_id) IN TEXTS($1) \
     UNION ALL SELECT content_id FROM multipart_parts WHERE UNINDEXED(content_id; md5) IN TEXTS($1) \
     UNION ALL SELECT whole_id FROM content_parts WHERE UNINDEXED(whole_id; length) IN TEXTS($1) \
     UNION ALL SELECT pin_content_id FROM pending_objects WHERE UNINDEXED(pin_content_id; owner) IN TEXTS($1)\
     ) AS said GROUP BY id";

/// Adds the difference that was seen, if the count still is the one seen. Rows that the indexes show by now keep the
/// count up as well.
const RECOUNT: &str = concat!(
    "UPDATE contents SET ref_count = s.n FROM (SELECT w.id AS found, w.counted AS counted, \
     CASE WHEN w.indexed > w.confirmed THEN w.indexed ELSE w.confirmed END AS n FROM (SELECT c.id AS id, \
     CAST(t.value ->> 1 AS BIGINT) AS counted, CAST(t.value ->> 2 AS BIGINT) AS confirmed, ",
    referring!(),
    " AS indexed FROM json_each($1) t JOIN contents c ON c.id = t.value ->> 0) w) s \
     WHERE s.found = contents.id AND ref_count = s.counted AND ref_count <> s.n RETURNING id, ref_count"
);

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

pub(super) async fn page(catalog: &Catalog, after: Option<ContentId>, limit: usize) -> Result<CountPage, Error> {
    let after = after.map(|content| content.to_string()).unwrap_or_default();
    let mut page = CountPage::default();
    for row in catalog.scan(COUNTS, params![after, limit]).await? {
        page.add(&row)?;
    }
    Ok(page)
}

pub(super) async fn confirm(catalog: &Catalog, contents: &[ContentId]) -> Result<Vec<Confirmed>, Error> {
    let list = params![json(&contents)];
    let (by_index, by_table) = (Statement::new(BY_INDEX, list.clone()), Statement::new(BY_TABLE, list));
    let (indexed, scanned) = catalog.driver.read_both_ways(by_index, by_table).await?;
    let scanned = scanned.iter().map(|row| Ok((row.text(0)?, row.int(1)?)));
    let scanned = scanned.collect::<Result<HashMap<_, _>, Error>>()?;
    let confirmed = indexed.iter().map(|row| {
        let (id, counted, found) = (row.text(0)?, row.int(1)?, row.int(2)?);
        let in_tables = scanned.get(id).copied().unwrap_or(0);
        if in_tables == found {
            return Ok(Confirmed { content: row.parse(0)?, counted, found });
        }
        let why = format!("indexes show {found} references to content {id}, their tables {in_tables}");
        catalog.condition.damage(&why);
        Err(Error::Corrupt(why))
    });
    confirmed.collect()
}

pub(super) async fn recount(catalog: &Catalog, suspects: &[Confirmed]) -> Result<Vec<Recounted>, Error> {
    catalog.condition.demand_sound()?;
    let ids: Vec<ContentId> = suspects.iter().map(|suspect| suspect.content).collect();
    let seen: Vec<_> = suspects.iter().map(|suspect| (suspect.content, suspect.counted, suspect.found)).collect();
    let mut unit = Unit::new("recount");
    // Every change of a count locks its content, so the counts below include all committed changes.
    unit.run("SELECT id FROM contents WHERE id IN TEXTS($1) ORDER BY id /*lock*/", params![json(&ids)]);
    let put_right = unit.run(RECOUNT, params![json(&seen)]);
    let answers = catalog.write(unit).await?;
    let before: HashMap<String, i64> =
        suspects.iter().map(|suspect| (suspect.content.to_string(), suspect.counted)).collect();
    let recounted = |row: &Row| {
        let to = row.int(1)?;
        Ok(Recounted { content: row.parse(0)?, from: before.get(row.text(0)?).copied().unwrap_or(to), to })
    };
    answers[put_right].rows.iter().map(recounted).collect()
}
