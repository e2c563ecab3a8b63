//! The tables whose rows name bytes on a backend, and the queries over all of them.
//!
//! Every query and check uses the list, so a new table is added in one place.

use std::sync::LazyLock;

use super::checks::SHOWN;

/// One table whose rows name bytes.
pub(super) struct Naming {
    /// The table, with columns `backend_name`, `physical_key`, `size_bytes` and `stripe`.
    pub table: &'static str,
    /// SQL condition for the rows that name bytes.
    pub only: &'static str,
    /// SQL expression for the kind of a row; `naming_row` translates it to `NamedBy`.
    kind: &'static str,
    /// SQL expression for the backend upload of a row.
    upload: &'static str,
    /// The quota counter that includes its bytes, if any.
    pub counter: Option<&'static str>,
    /// True if a row means that a write or delete may be under way or has an unknown outcome.
    unsettled: bool,
}

/// Locations come first because there may be many: a check of two tables runs for each row of the later one.
pub(super) const NAMING: &[Naming] = &[
    Naming {
        table: "object_locations",
        only: "1 = 1",
        kind: "CASE state WHEN 'lost' THEN 'lost' ELSE 'location' END",
        upload: "CAST(NULL AS TEXT)",
        counter: Some("used"),
        unsettled: false,
    },
    Naming {
        table: "cleanup_queue",
        only: "1 = 1",
        kind: "'cleanup'",
        upload: "backend_upload",
        counter: Some("orphan"),
        unsettled: true,
    },
    Naming {
        table: "cleanup_dlq",
        only: "1 = 1",
        kind: "'dead_letter'",
        upload: "backend_upload",
        counter: Some("orphan"),
        // Its write may never have arrived; no probe has shown it yet.
        unsettled: true,
    },
    Naming {
        table: "findings",
        only: "kind = 'written_off'",
        kind: "'written_off'",
        upload: "CAST(NULL AS TEXT)",
        counter: None,
        // An operator may have deleted the bytes.
        unsettled: true,
    },
    Naming {
        table: "pending_objects",
        // Pins name no bytes.
        only: "backend_name IS NOT NULL",
        kind: "'intent'",
        upload: "backend_upload",
        counter: Some("reserved"),
        unsettled: true,
    },
];

const COUNTERS: [&str; 3] = ["used", "orphan", "reserved"];

fn united(selects: impl Iterator<Item = String>) -> String {
    selects.collect::<Vec<_>>().join(" UNION ALL ")
}

/// The rows that name any of the keys `$2` on the backend `$1`.
pub(super) static NAMED: LazyLock<String> = LazyLock::new(|| {
    let select = |Naming { table, only, kind, upload, .. }: &Naming| {
        format!(
            "SELECT physical_key, {kind} AS kind, size_bytes, {upload} AS upload FROM {table} \
             WHERE backend_name = $1 AND physical_key IN TEXTS($2) AND {only}"
        )
    };
    united(NAMING.iter().map(select))
});

/// Those of the IDs `$2` that end a physical key on the backend `$1`. Locations are excluded: no counter includes a
/// temporary file of committed bytes.
pub(super) static IDENTIFIED: LazyLock<String> = LazyLock::new(|| {
    let last = "substr(physical_key, length(physical_key) - 31)";
    let tables = NAMING.iter().filter(|naming| naming.counter != Some("used"));
    united(tables.map(|Naming { table, only, .. }| {
        format!("SELECT {last} AS identifier FROM {table} WHERE backend_name = $1 AND {last} IN TEXTS($2) AND {only}")
    }))
});

/// Counters that differ from the sums of their rows, and rows without a quota row. One statement, so that both sides
/// are of one snapshot.
pub(crate) static DRIFTED: LazyLock<String> = LazyLock::new(|| {
    let kept = COUNTERS.iter().map(|counter| {
        format!(
            "SELECT backend_name, stripe, '{counter}' AS counter, {counter}_bytes AS kept, 0 AS summed, 1 AS \
             quota_rows FROM backend_quotas"
        )
    });
    let counted = NAMING.iter().filter_map(|naming| naming.counter.map(|counter| (naming, counter)));
    let summed = counted.map(|(Naming { table, only, .. }, counter)| {
        format!("SELECT backend_name, stripe, '{counter}', 0, size_bytes, 0 FROM {table} WHERE {only}")
    });
    format!(
        "SELECT 'backend ' || backend_name || ', stripe ' || stripe || ': ' || counter || ' bytes are ' || sum(kept) \
         || ' in the counter and ' || sum(summed) || ' in the rows' \
         || CASE sum(quota_rows) WHEN 0 THEN ', without a quota row' ELSE '' END AS {SHOWN} \
         FROM ({}) AS entries GROUP BY backend_name, stripe, counter \
         HAVING sum(kept) <> sum(summed) OR sum(quota_rows) = 0 ORDER BY 1",
        united(kept.chain(summed))
    )
});

/// Values of backend `$1` that change with every write and delete: whether anything is unsettled, the bytes inside and
/// outside of the quota accounting, the newest content and the newest condemnation.
pub(super) static PULSE: LazyLock<String> = LazyLock::new(|| {
    let unsettled = NAMING
        .iter()
        .filter(|naming| naming.unsettled)
        .map(|Naming { table, only, .. }| format!("EXISTS (SELECT 1 FROM {table} WHERE backend_name = $1 AND {only})"));
    let uncounted = NAMING.iter().filter(|naming| naming.counter.is_none()).map(|Naming { table, only, .. }| {
        format!(" + (SELECT coalesce(sum(size_bytes), 0) FROM {table} WHERE backend_name = $1 AND {only})")
    });
    format!(
        "SELECT CASE WHEN {} THEN 1 ELSE 0 END AS unsettled, \
         CAST((SELECT coalesce(sum(used_bytes + orphan_bytes + reserved_bytes), 0) \
         FROM backend_quotas WHERE backend_name = $1){} AS BIGINT) AS bytes, \
         (SELECT max(id) FROM contents) AS newest_content, (SELECT max(condemned_at) FROM contents \
         WHERE state = 'condemned' AND kind = 'whole') AS newest_condemned",
        unsettled.collect::<Vec<_>>().join(" OR "),
        uncounted.collect::<String>()
    )
});
