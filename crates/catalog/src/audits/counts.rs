//! Reference counts and referring rows: compared page by page, confirmed by reading whole tables, and repaired.
//!
//! A count is lowered only to a number that index and table agree on. A damaged index may miss rows; a repair that
//! relied on it would delete bytes that objects refer to.

use std::collections::HashMap;
use std::sync::LazyLock;

use s3o_model::ids::ContentId;

use super::{CountPage, Recounted};
use crate::error::Error;
use crate::unit::{LockRank, Row, Statement, Unit, json};
use crate::{Catalog, params};

/// A content whose count may be wrong, with its references counted in two ways in one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// Live or condemned.
    pub content: ContentId,
    /// Value of `ref_count`.
    pub counted: i64,
    /// Number of referring rows, on which indexes and tables agree.
    pub found: i64,
}

/// Number of rows that refer to content `c`, through the indexes.
const REFERRING: &str = "((SELECT count(*) FROM objects WHERE content_id = c.id) \
     + (SELECT count(*) FROM multipart_parts WHERE content_id = c.id) \
     + (SELECT count(*) FROM content_parts WHERE whole_id = c.id) \
     + (SELECT count(*) FROM trash_objects WHERE content_id = c.id) \
     + (SELECT count(*) FROM pending_objects WHERE pin_content_id = c.id))";

/// Reads contents and references in parallel, in the order of content IDs, so that the cost of a page depends on its
/// own size only: counting per content would be a search per content, or a scan if the planner errs. The last row has
/// the end of the page, the number of its contents, and no `found`.
static COUNTS: LazyLock<String> = LazyLock::new(|| {
    let tables = [
        ("content_id", "objects"),
        ("content_id", "multipart_parts"),
        ("content_id", "trash_objects"),
        ("whole_id", "content_parts"),
        ("pin_content_id", "pending_objects"),
    ];
    let references = tables.map(|(column, table)| {
        format!(
            " UNION ALL SELECT {column}, NULL, NULL, 1 FROM {table} \
             WHERE {column} > $1 AND {column} <= (SELECT max(id) FROM page)"
        )
    });
    format!(
        "WITH page AS MATERIALIZED (SELECT id, ref_count, state FROM contents WHERE id > $1 ORDER BY id LIMIT $2), \
         entries AS (SELECT id, ref_count, state, 0 AS one FROM page{}) \
         SELECT id, max(ref_count) AS counted, sum(one) AS found FROM entries GROUP BY id \
         HAVING max(ref_count) <> sum(one) OR (sum(one) = 0 AND max(state) = 'live') \
         UNION ALL SELECT max(id), count(*), NULL FROM page",
        references.concat()
    )
});

static BY_INDEX: LazyLock<String> =
    LazyLock::new(|| format!("SELECT c.id, c.ref_count, {REFERRING} AS found FROM contents c WHERE c.id IN TEXTS($1)"));

/// Counts references without indexes; `UNINDEXED` is explained in `driver/dialect.rs`.
pub(crate) const BY_TABLE: &str = "SELECT id, count(*) AS found FROM (\
     SELECT content_id AS id FROM objects WHERE UNINDEXED(content_id; version_id) IN TEXTS($1) \
     UNION ALL SELECT content_id FROM multipart_parts WHERE UNINDEXED(content_id; md5) IN TEXTS($1) \
     UNION ALL SELECT content_id FROM trash_objects WHERE UNINDEXED(content_id; etag) IN TEXTS($1) \
     UNION ALL SELECT whole_id FROM content_parts WHERE UNINDEXED(whole_id; length) IN TEXTS($1) \
     UNION ALL SELECT pin_content_id FROM pending_objects WHERE UNINDEXED(pin_content_id; owner) IN TEXTS($1)\
     ) AS entries GROUP BY id";

/// Sets counts that did not change to the confirmed number, or to the number by index if that is higher by now.
static RECOUNT: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE contents SET ref_count = s.n FROM (SELECT w.id AS found, w.counted AS counted, \
         CASE WHEN w.indexed > w.confirmed THEN w.indexed ELSE w.confirmed END AS n FROM (SELECT c.id AS id, \
         CAST(t.value ->> 1 AS BIGINT) AS counted, CAST(t.value ->> 2 AS BIGINT) AS confirmed, \
         {REFERRING} AS indexed FROM json_each($1) t JOIN contents c ON c.id = t.value ->> 0) w) s \
         WHERE s.found = contents.id AND ref_count = s.counted AND ref_count <> s.n RETURNING id, ref_count"
    )
});

impl CountPage {
    fn add(&mut self, row: &Row) -> Result<(), Error> {
        let counted = row.int("counted")?;
        match row.opt_int("found")? {
            None => {
                self.last = row.opt_text("id")?.map(|_| row.parse("id")).transpose()?;
                self.seen = row.size("counted")?;
            }
            Some(found) if found == counted => self.unreferenced.push(row.parse("id")?),
            Some(_) => self.miscounted.push(row.parse("id")?),
        }
        Ok(())
    }
}

pub(super) async fn page(catalog: &Catalog, after: Option<ContentId>, limit: usize) -> Result<CountPage, Error> {
    let after = after.map(|content| content.to_string()).unwrap_or_default();
    let mut page = CountPage::default();
    for row in catalog.scan(&COUNTS, params![after, limit]).await? {
        page.add(&row)?;
    }
    Ok(page)
}

pub(super) async fn confirm(catalog: &Catalog, contents: &[ContentId]) -> Result<Vec<Confirmed>, Error> {
    let list = params![json(&contents)];
    let (by_index, by_table) = (Statement::new(&BY_INDEX, list.clone()), Statement::new(BY_TABLE, list));
    let (indexed, scanned) = catalog.driver.read_both_ways(by_index, by_table).await?;
    let scanned = scanned.iter().map(|row| Ok((row.text("id")?, row.int("found")?)));
    let scanned = scanned.collect::<Result<HashMap<_, _>, Error>>()?;
    let confirmed = indexed.iter().map(|row| {
        let (id, counted, found) = (row.text("id")?, row.int("ref_count")?, row.int("found")?);
        let in_tables = scanned.get(id).copied().unwrap_or(0);
        if in_tables == found {
            return Ok(Confirmed { content: row.parse("id")?, counted, found });
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
    let lock = "SELECT id FROM contents WHERE id IN TEXTS($1) ORDER BY id /*lock*/";
    unit.at(LockRank::Content).run(lock, params![json(&ids)]);
    let repaired = unit.run(&RECOUNT, params![json(&seen)]);
    let answers = catalog.write(unit).await?;
    let before: HashMap<String, i64> =
        suspects.iter().map(|suspect| (suspect.content.to_string(), suspect.counted)).collect();
    let recounted = |row: &Row| {
        let to = row.int("ref_count")?;
        Ok(Recounted { content: row.parse("id")?, from: before.get(row.text("id")?).copied().unwrap_or(to), to })
    };
    answers[repaired].rows.iter().map(recounted).collect()
}
