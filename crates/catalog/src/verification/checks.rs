//! Consistency checks between the rows of a catalog, page by page.
//!
//! Every check of a page is one statement, so that it sees one snapshot and concurrent units cause no false alarm. The
//! page bounds how long a statement holds its snapshot.

use std::sync::LazyLock;

use s3o_model::verify::Invariant;

use super::naming::{NAMING, Naming, name_the_same};
use crate::params;
use crate::unit::Value;

/// The column of the description in the statements of checks.
pub(crate) const SHOWN: &str = "shown";

/// A position in a table: values of the columns that order its pages.
#[derive(Debug, Clone, PartialEq)]
pub struct Cursor(pub(crate) Vec<Value>);

/// A table that is read in pages, ordered by these columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Paged {
    table: &'static str,
    columns: &'static [&'static str],
}

const CONTENTS: Paged = Paged { table: "contents", columns: &["id"] };
const OBJECTS: Paged = Paged { table: "objects", columns: &["bucket_id", "key"] };
const UPLOADS: Paged = Paged { table: "multipart_uploads", columns: &["id"] };

const fn naming(table: &'static str) -> Paged {
    Paged { table, columns: &["backend_name", "physical_key"] }
}

/// The columns that refer to content.
const REFERRING: &[(&str, &str)] = &[
    ("objects", "content_id"),
    ("multipart_parts", "content_id"),
    ("content_parts", "whole_id"),
    ("pending_objects", "pin_content_id"),
];

/// One check of the rows of a table.
pub struct Check {
    /// The invariant that violations break.
    pub invariant: Invariant,
    /// The condition that must hold, as a sentence.
    pub what: &'static str,
    over: Paged,
    page: String,
    pub(crate) broken: String,
}

impl Check {
    /// The cursor before the first row.
    #[must_use]
    pub fn start(&self) -> Cursor {
        let least = |column: &&str| if *column == "bucket_id" { Value::Int(0) } else { Value::from("") };
        Cursor(self.over.columns.iter().map(least).collect())
    }

    /// SQL that finds the end of the page after a cursor.
    pub(crate) fn page(&'static self) -> &'static str {
        &self.page
    }

    /// The parameters of `broken` for one page.
    pub(super) fn span(after: &Cursor, upto: &Cursor) -> Vec<Value> {
        [after.0.as_slice(), upto.0.as_slice()].concat()
    }

    /// The parameters of `page`.
    pub(super) fn step(after: &Cursor, rows: usize) -> Vec<Value> {
        [after.0.clone(), params![rows]].concat()
    }
}

fn numbered(from: usize, count: usize) -> String {
    (from..from + count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}

impl Paged {
    fn page_end(self) -> String {
        let Self { table, columns } = self;
        let (all, count) = (columns.join(", "), columns.len());
        let (place, limit) = (numbered(1, count), count + 1);
        let last = columns.iter().map(|column| format!("{column} DESC")).collect::<Vec<_>>().join(", ");
        format!(
            "SELECT {all} FROM (SELECT {all} FROM {table} WHERE ({all}) > ({place}) ORDER BY {all} LIMIT ${limit}) \
             AS page ORDER BY {last} LIMIT 1"
        )
    }

    /// SQL that is true for rows of the page.
    fn within(self, alias: &str) -> String {
        let count = self.columns.len();
        let all = self.columns.iter().map(|column| format!("{alias}.{column}")).collect::<Vec<_>>().join(", ");
        format!("({all}) > ({}) AND ({all}) <= ({})", numbered(1, count), numbered(count + 1, count))
    }
}

/// A check of the rows `r` of a table. `shown` is an expression that describes a violating row, `from` the tables, and
/// `condition` is true for violations.
fn check(invariant: Invariant, what: &'static str, over: Paged, [shown, from, condition]: [&str; 3]) -> Check {
    let broken = format!("SELECT {shown} AS {SHOWN} FROM {from} WHERE {} AND ({condition})", over.within("r"));
    Check { invariant, what, over, page: over.page_end(), broken }
}

/// All checks, in the order in which they run.
#[must_use]
pub fn checks() -> &'static [Check] {
    static CHECKS: LazyLock<Vec<Check>> = LazyLock::new(|| {
        [about_references(), about_locations(), about_pieces(), about_objects(), about_uploads(), about_names()]
            .into_iter()
            .flatten()
            .collect()
    });
    &CHECKS
}

fn about_references() -> Vec<Check> {
    let counts =
        REFERRING.iter().map(|(table, column)| format!("(SELECT count(*) FROM {table} WHERE {column} = r.id)"));
    let counts = counts.collect::<Vec<_>>().join(" + ");
    let shown = format!("'content ' || r.id || ': ref_count ' || r.ref_count || ', rows ' || ({counts})");
    vec![
        check(
            Invariant::I6,
            "a reference count equals the number of referring rows",
            CONTENTS,
            [&shown, "contents r", &format!("r.ref_count <> {counts}")],
        ),
        check(
            Invariant::I6,
            "live content has references, condemned content has none",
            CONTENTS,
            [
                "'content ' || r.id || ' is ' || r.state || ' with ref_count ' || r.ref_count",
                "contents r",
                "(r.state = 'live') <> (r.ref_count > 0) OR (r.state = 'condemned') <> (r.condemned_at IS NOT NULL)",
            ],
        ),
    ]
}

const WITHOUT_COPY: &str = "r.state = 'live' AND r.kind = 'whole' AND NOT EXISTS \
     (SELECT 1 FROM object_locations l WHERE l.content_id = r.id AND l.state <> 'lost')";

/// True for content whose copy was lost with a backend that an operator wrote off, or is missing or of another size by
/// a finding of reconcile.
const REPORTED_LOST: &str = "EXISTS (SELECT 1 FROM object_locations w JOIN findings f \
     ON f.backend_name = w.backend_name AND f.physical_key IN ('', w.physical_key) \
     AND f.kind IN ('lost_copies', 'missing', 'wrong_size') WHERE w.content_id = r.id)";

/// Not a check that must hold: finds the contents that are known to be lost.
#[must_use]
pub fn lost_contents() -> &'static Check {
    static LOST: LazyLock<Check> = LazyLock::new(|| {
        let shown = "'content ' || r.id || ', ' || r.size_bytes || ' bytes'";
        let condition = format!("{WITHOUT_COPY} AND {REPORTED_LOST}");
        check(Invariant::I2, "content is lost", CONTENTS, [shown, "contents r", &condition])
    });
    &LOST
}

fn about_locations() -> Vec<Check> {
    let shown = "'backend ' || l.backend_name || ': ' || l.physical_key || ' of content ' || r.id";
    let from = "contents r JOIN object_locations l ON l.content_id = r.id";
    vec![
        check(
            Invariant::I2,
            "live whole content has a location that is not lost",
            CONTENTS,
            ["'content ' || r.id", "contents r", &format!("{WITHOUT_COPY} AND NOT {REPORTED_LOST}")],
        ),
        check(
            Invariant::I6,
            "only live whole content has locations",
            CONTENTS,
            [shown, from, "r.state <> 'live' OR r.kind <> 'whole'"],
        ),
        check(
            Invariant::I1,
            "a location is as large as its content",
            CONTENTS,
            // A lost copy stores nothing.
            [shown, from, "l.size_bytes <> r.size_bytes AND l.state <> 'lost'"],
        ),
    ]
}

fn about_pieces() -> Vec<Check> {
    vec![
        check(
            Invariant::I1,
            "the pieces of live joined content cover it without gaps",
            CONTENTS,
            [
                "'content ' || r.id",
                "contents r",
                "r.kind = 'joined' AND r.state = 'live' AND (r.size_bytes <> \
                 (SELECT coalesce(sum(length), 0) FROM content_parts WHERE joined_id = r.id) \
                 OR EXISTS (SELECT 1 FROM (SELECT start, sum(length) OVER (ORDER BY number) - length AS expected \
                 FROM content_parts WHERE joined_id = r.id) AS laid WHERE start <> expected))",
            ],
        ),
        check(
            Invariant::I1,
            "a piece lies within live whole content",
            CONTENTS,
            [
                "'content ' || r.id || ', piece ' || p.number",
                "contents r JOIN content_parts p ON p.joined_id = r.id LEFT JOIN contents w ON w.id = p.whole_id",
                "r.kind <> 'joined' OR w.id IS NULL OR w.state <> 'live' OR w.kind <> 'whole' \
                 OR p.byte_offset + p.length > w.size_bytes",
            ],
        ),
    ]
}

fn about_objects() -> Vec<Check> {
    vec![check(
        Invariant::I1,
        "an object has live content of its size",
        OBJECTS,
        [
            "'object ' || coalesce(b.name, '?') || '/' || r.key",
            "objects r LEFT JOIN contents c ON c.id = r.content_id LEFT JOIN buckets b ON b.id = r.bucket_id",
            "c.id IS NULL OR c.state <> 'live' OR c.size_bytes <> r.size_bytes",
        ],
    )]
}

fn about_uploads() -> Vec<Check> {
    vec![
        check(
            Invariant::I1,
            "a part lies within live whole content",
            UPLOADS,
            [
                "'upload ' || r.id || ', part ' || m.number",
                "multipart_uploads r JOIN multipart_parts m ON m.upload_id = r.id \
                 LEFT JOIN contents c ON c.id = m.content_id",
                "c.id IS NULL OR c.state <> 'live' OR c.kind <> 'whole' OR m.byte_offset + m.length > c.size_bytes",
            ],
        ),
        check(
            Invariant::I11,
            "a closed upload that still has parts waits for cleanup",
            UPLOADS,
            [
                "'upload ' || r.id",
                "multipart_uploads r",
                "(r.leftover = 1) <> (r.state <> 'open' \
                 AND EXISTS (SELECT 1 FROM multipart_parts WHERE upload_id = r.id))",
            ],
        ),
    ]
}

fn about_names() -> Vec<Check> {
    let mut checks = vec![check(
        Invariant::I8,
        "a claim has all of its fields or none",
        naming("cleanup_queue"),
        [
            "'backend ' || r.backend_name || ': ' || r.physical_key",
            "cleanup_queue r",
            "(r.token IS NULL) <> (r.claimed_by IS NULL) OR (r.token IS NULL) <> (r.claimed_at IS NULL)",
        ],
    )];
    for (position, later) in NAMING.iter().enumerate() {
        for earlier in &NAMING[..position] {
            checks.push(named_once(earlier, later));
        }
    }
    checks
}

/// A key that two tables name. It is worse if one of them locates it and the other queues it for deletion.
fn named_once(earlier: &Naming, later: &Naming) -> Check {
    let (invariant, what) = match (earlier.counter, later.counter) {
        (Some("used"), Some("orphan")) => (Invariant::I4, "no bytes of a location are queued for deletion"),
        _ => (Invariant::I3, "only one row names a physical key"),
    };
    let (table, other) = (later.table, earlier.table);
    let shown = format!("'backend ' || r.backend_name || ': ' || r.physical_key || ' in {table} and in {other}'");
    let condition = format!(
        "{} AND EXISTS (SELECT 1 FROM {other} e WHERE e.backend_name = r.backend_name \
         AND e.physical_key = r.physical_key AND {} AND {})",
        later.only,
        earlier.only,
        name_the_same(later, earlier)
    );
    check(invariant, what, naming(table), [&shown, &format!("{table} r"), &condition])
}
