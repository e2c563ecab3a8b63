//! What the rows of a catalog can be asked about each other, page by page.
//!
//! Every question is one statement: what it sees is of one moment, so that a system at work raises
//! no false alarm. A page bounds how long a statement holds that moment.

use std::sync::LazyLock;

use s3o_model::verify::Invariant;

use super::naming::{NAMING, Naming};
use crate::params;
use crate::unit::Value;

/// A place in a table, by the columns that it is read by.
#[derive(Debug, Clone, PartialEq)]
pub struct Cursor(pub(crate) Vec<Value>);

/// A table that is read in pages.
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

/// The columns by which rows refer to content; a table that is added counts from then on.
const REFERRING: &[(&str, &str)] = &[
    ("objects", "content_id"),
    ("multipart_parts", "content_id"),
    ("content_parts", "whole_id"),
    ("pending_objects", "pin_content_id"),
];

/// One question to the rows of a table.
pub struct Check {
    /// The invariant that it is about.
    pub invariant: Invariant,
    /// What must hold.
    pub what: &'static str,
    over: Paged,
    page: String,
    pub(crate) broken: String,
}

impl Check {
    /// Where a table begins.
    #[must_use]
    pub fn start(&self) -> Cursor {
        let least = |column: &&str| if *column == "bucket_id" { Value::Int(0) } else { Value::from("") };
        Cursor(self.over.columns.iter().map(least).collect())
    }

    /// The end of the page behind a place.
    pub(crate) fn page(&'static self) -> &'static str {
        &self.page
    }

    /// The values of the question for one page.
    pub(super) fn span(after: &Cursor, upto: &Cursor) -> Vec<Value> {
        [after.0.as_slice(), upto.0.as_slice()].concat()
    }

    /// The values that find the end of a page.
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
            "SELECT {all} FROM (SELECT {all} FROM {table} WHERE ({all}) > ({place}) ORDER BY {all} LIMIT ${limit}) AS page \
             ORDER BY {last} LIMIT 1"
        )
    }

    /// Whether a row that is called `alias` lies in the page.
    fn within(self, alias: &str) -> String {
        let count = self.columns.len();
        let all = self.columns.iter().map(|column| format!("{alias}.{column}")).collect::<Vec<_>>().join(", ");
        format!("({all}) > ({}) AND ({all}) <= ({})", numbered(1, count), numbered(count + 1, count))
    }
}

/// A question about the rows `r` of a table: `broken` selects what is shown and ends where the condition
/// begins.
fn check(invariant: Invariant, what: &'static str, over: Paged, broken: &str, condition: &str) -> Check {
    let broken = format!("{broken} WHERE {} AND ({condition})", over.within("r"));
    Check { invariant, what, over, page: over.page_end(), broken }
}

/// Everything that is asked.
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
    vec![
        check(
            Invariant::I6,
            "a count equals the rows that refer",
            CONTENTS,
            &format!(
                "SELECT 'content ' || r.id || ': ref_count ' || r.ref_count || ', rows ' || ({counts}) FROM contents r"
            ),
            &format!("r.ref_count <> {counts}"),
        ),
        check(
            Invariant::I6,
            "live content is referred to, condemned content is not",
            CONTENTS,
            "SELECT 'content ' || r.id || ' is ' || r.state || ' with ref_count ' || r.ref_count FROM contents r",
            "(r.state = 'live') <> (r.ref_count > 0) OR (r.state = 'condemned') <> (r.condemned_at IS NOT NULL)",
        ),
    ]
}

fn about_locations() -> Vec<Check> {
    vec![
        check(
            Invariant::I2,
            "live whole content has a location that is not lost",
            CONTENTS,
            "SELECT 'content ' || r.id FROM contents r",
            "r.state = 'live' AND r.kind = 'whole' AND NOT EXISTS \
             (SELECT 1 FROM object_locations l WHERE l.content_id = r.id AND l.state <> 'lost')",
        ),
        check(
            Invariant::I6,
            "only live whole content has locations",
            CONTENTS,
            "SELECT 'backend ' || l.backend_name || ': ' || l.physical_key || ' of content ' || r.id \
             FROM contents r JOIN object_locations l ON l.content_id = r.id",
            "r.state <> 'live' OR r.kind <> 'whole'",
        ),
        check(
            Invariant::I1,
            "a location is as large as its content",
            CONTENTS,
            "SELECT 'backend ' || l.backend_name || ': ' || l.physical_key || ' of content ' || r.id \
             FROM contents r JOIN object_locations l ON l.content_id = r.id",
            "l.size_bytes <> r.size_bytes",
        ),
    ]
}

fn about_pieces() -> Vec<Check> {
    let piece = "FROM contents r JOIN content_parts p ON p.joined_id = r.id LEFT JOIN contents w ON w.id = p.whole_id";
    vec![
        check(
            Invariant::I1,
            "the pieces of live joined content follow each other to its end",
            CONTENTS,
            "SELECT 'content ' || r.id FROM contents r",
            "r.kind = 'joined' AND r.state = 'live' AND (r.size_bytes <> \
             (SELECT coalesce(sum(length), 0) FROM content_parts WHERE joined_id = r.id) \
             OR EXISTS (SELECT 1 FROM (SELECT start, sum(length) OVER (ORDER BY number) - length AS expected \
             FROM content_parts WHERE joined_id = r.id) AS laid WHERE start <> expected))",
        ),
        check(
            Invariant::I1,
            "a piece lies within live whole content",
            CONTENTS,
            &format!("SELECT 'content ' || r.id || ', piece ' || p.number {piece}"),
            "r.kind <> 'joined' OR w.id IS NULL OR w.state <> 'live' OR w.kind <> 'whole' \
             OR p.byte_offset + p.length > w.size_bytes",
        ),
    ]
}

fn about_objects() -> Vec<Check> {
    vec![check(
        Invariant::I1,
        "an object has live content of its size",
        OBJECTS,
        "SELECT 'object ' || coalesce(b.name, '?') || '/' || r.key FROM objects r \
         LEFT JOIN contents c ON c.id = r.content_id LEFT JOIN buckets b ON b.id = r.bucket_id",
        "c.id IS NULL OR c.state <> 'live' OR c.size_bytes <> r.size_bytes",
    )]
}

fn about_uploads() -> Vec<Check> {
    vec![
        check(
            Invariant::I1,
            "a part lies within live whole content",
            UPLOADS,
            "SELECT 'upload ' || r.id || ', part ' || m.number FROM multipart_uploads r \
             JOIN multipart_parts m ON m.upload_id = r.id LEFT JOIN contents c ON c.id = m.content_id",
            "c.id IS NULL OR c.state <> 'live' OR c.kind <> 'whole' OR m.byte_offset + m.length > c.size_bytes",
        ),
        check(
            Invariant::I11,
            "a closed upload that holds parts is left to cleanup",
            UPLOADS,
            "SELECT 'upload ' || r.id FROM multipart_uploads r",
            "(r.leftover = 1) <> (r.state <> 'open' \
             AND EXISTS (SELECT 1 FROM multipart_parts WHERE upload_id = r.id))",
        ),
    ]
}

fn about_names() -> Vec<Check> {
    let mut checks = vec![check(
        Invariant::I8,
        "a claim is whole or not there",
        naming("cleanup_queue"),
        "SELECT 'backend ' || r.backend_name || ': ' || r.physical_key FROM cleanup_queue r",
        "(r.token IS NULL) <> (r.claimed_by IS NULL) OR (r.token IS NULL) <> (r.claimed_at IS NULL)",
    )];
    for (position, later) in NAMING.iter().enumerate() {
        for earlier in &NAMING[..position] {
            checks.push(named_once(earlier, later));
        }
    }
    checks
}

/// A key that two tables name. Where one locates it and the other wants it gone, that is worse than a
/// key that is named twice.
fn named_once(earlier: &Naming, later: &Naming) -> Check {
    let (invariant, what) = match (earlier.book, later.book) {
        (Some("used"), Some("orphan")) => (Invariant::I4, "nothing that a location names waits to be deleted"),
        _ => (Invariant::I3, "a physical key is named once"),
    };
    let (table, other) = (later.table, earlier.table);
    check(
        invariant,
        what,
        naming(table),
        &format!(
            "SELECT 'backend ' || r.backend_name || ': ' || r.physical_key || ' in {table} and in {other}' FROM {table} r"
        ),
        &format!(
            "{} AND EXISTS (SELECT 1 FROM {other} e WHERE e.backend_name = r.backend_name \
             AND e.physical_key = r.physical_key AND {})",
            later.only, earlier.only
        ),
    )
}
