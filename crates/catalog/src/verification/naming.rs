//! The tables whose rows name bytes on a backend, and what is asked of all of them together.
//!
//! A table that is added to the list takes part in every check.

use std::sync::LazyLock;

/// One table whose rows name bytes.
pub(super) struct Naming {
    /// The table, with columns `backend_name`, `physical_key`, `size_bytes` and `stripe`.
    pub table: &'static str,
    /// Which of its rows name bytes, in SQL.
    pub only: &'static str,
    /// What kind of row it is, in SQL; `model::verify::NamedBy` knows the words.
    kind: &'static str,
    /// What its rows know of a backend upload, in SQL.
    upload: &'static str,
    /// The counter that sums it up, where one does.
    pub book: Option<&'static str>,
    /// Whether a write may be under way, or its end not known yet, as long as a row is there.
    unsettled: bool,
}

/// Locations come first: there may be many of them, and what is asked of two tables is asked for each
/// row of the later one.
pub(super) const NAMING: &[Naming] = &[
    Naming {
        table: "object_locations",
        only: "1 = 1",
        kind: "CASE state WHEN 'lost' THEN 'lost' ELSE 'location' END",
        upload: "CAST(NULL AS TEXT)",
        book: Some("used"),
        unsettled: false,
    },
    Naming {
        table: "cleanup_queue",
        only: "1 = 1",
        kind: "'cleanup'",
        upload: "backend_upload",
        book: Some("orphan"),
        unsettled: true,
    },
    Naming {
        table: "cleanup_dlq",
        only: "1 = 1",
        kind: "'dead_letter'",
        upload: "backend_upload",
        book: Some("orphan"),
        // Its write may never have arrived, and nobody could look.
        unsettled: true,
    },
    Naming {
        table: "findings",
        only: "kind = 'written_off'",
        kind: "'written_off'",
        upload: "CAST(NULL AS TEXT)",
        book: None,
        // Somebody may have removed the bytes by hand.
        unsettled: true,
    },
    Naming {
        table: "pending_objects",
        // Pins name no bytes.
        only: "backend_name IS NOT NULL",
        kind: "'intent'",
        upload: "backend_upload",
        book: Some("reserved"),
        unsettled: true,
    },
];

const BOOKS: [&str; 3] = ["used", "orphan", "reserved"];

fn united(selects: impl Iterator<Item = String>) -> String {
    selects.collect::<Vec<_>>().join(" UNION ALL ")
}

/// The rows that name any of the keys `$2` on the backend `$1`.
pub(super) static NAMED: LazyLock<String> = LazyLock::new(|| {
    let select = |Naming { table, only, kind, upload, .. }: &Naming| {
        format!(
            "SELECT physical_key, {kind}, size_bytes, {upload} FROM {table} \
             WHERE backend_name = $1 AND physical_key IN TEXTS($2) AND {only}"
        )
    };
    united(NAMING.iter().map(select))
});

/// Those of the identifiers `$2` that end a physical key on the backend `$1`. Not those of locations:
/// a draft of committed bytes is in nobody's books.
pub(super) static IDENTIFIED: LazyLock<String> = LazyLock::new(|| {
    let last = "substr(physical_key, length(physical_key) - 31)";
    let tables = NAMING.iter().filter(|naming| naming.book != Some("used"));
    united(tables.map(|Naming { table, only, .. }| {
        format!("SELECT {last} FROM {table} WHERE backend_name = $1 AND {last} IN TEXTS($2) AND {only}")
    }))
});

/// Counters that differ from the sums of their rows, and rows that are in no counter: one statement, so
/// that both sides are of one moment.
pub(crate) static DRIFTED: LazyLock<String> = LazyLock::new(|| {
    let kept = BOOKS.iter().map(|book| {
        format!(
            "SELECT backend_name, stripe, '{book}' AS book, {book}_bytes AS kept, 0 AS summed, 1 AS books \
             FROM backend_quotas"
        )
    });
    let booked = NAMING.iter().filter_map(|naming| naming.book.map(|book| (naming, book)));
    let summed = booked.map(|(Naming { table, only, .. }, book)| {
        format!("SELECT backend_name, stripe, '{book}', 0, size_bytes, 0 FROM {table} WHERE {only}")
    });
    format!(
        "SELECT 'backend ' || backend_name || ', stripe ' || stripe || ': ' || book || ' bytes are ' || sum(kept) \
         || ' in the books and ' || sum(summed) || ' in the rows' \
         || CASE sum(books) WHEN 0 THEN ', without books' ELSE '' END \
         FROM ({}) AS entries GROUP BY backend_name, stripe, book \
         HAVING sum(kept) <> sum(summed) OR sum(books) = 0 ORDER BY 1",
        united(kept.chain(summed))
    )
});

/// What changes when anything changes on the backend `$1`: whether something is unsettled, the bytes in
/// the books and beside them, the newest content and the newest condemnation.
pub(super) static PULSE: LazyLock<String> = LazyLock::new(|| {
    let unsettled = NAMING
        .iter()
        .filter(|naming| naming.unsettled)
        .map(|Naming { table, only, .. }| format!("EXISTS (SELECT 1 FROM {table} WHERE backend_name = $1 AND {only})"));
    let unbooked = NAMING.iter().filter(|naming| naming.book.is_none()).map(|Naming { table, only, .. }| {
        format!(" + (SELECT coalesce(sum(size_bytes), 0) FROM {table} WHERE backend_name = $1 AND {only})")
    });
    format!(
        "SELECT CASE WHEN {} THEN 1 ELSE 0 END, \
         CAST((SELECT coalesce(sum(used_bytes + orphan_bytes + reserved_bytes), 0) \
         FROM backend_quotas WHERE backend_name = $1){} AS BIGINT), (SELECT max(id) FROM contents), \
         (SELECT max(condemned_at) FROM contents WHERE state = 'condemned' AND kind = 'whole')",
        unsettled.collect::<Vec<_>>().join(" OR "),
        unbooked.collect::<String>()
    )
});
