//! The tables whose rows name bytes on a backend, and the queries over all of them.
//!
//! Every query and check uses the list, so a new table is added in one place.

use std::sync::LazyLock;

use super::checks::SHOWN;
use crate::cleanups::enqueue::{OBJECT_TARGET, is_object};

/// One table whose rows name bytes.
pub(super) struct Naming {
    /// The table, with columns `backend_name`, `physical_key`, `size_bytes` and `stripe`.
    pub table: &'static str,
    /// SQL condition for the rows that name bytes.
    pub only: &'static str,
    /// SQL expression for the kind of a row; `naming_row` translates it to `NamedBy`.
    pub kind: &'static str,
    /// SQL expression for the target of a row under its key.
    pub target: &'static str,
    /// True if a row names everything under its key, whatever its target.
    pub names_all: bool,
    /// A column that no index contains, for queries that read the table.
    unindexed: &'static str,
    /// SQL expressions for the size that the bytes should have, and for when they were last verified.
    pub compared: [&'static str; 2],
    /// The quota counter that includes its bytes, if any.
    pub counter: Option<&'static str>,
    /// True if a row means that a write or delete may be under way or has an unknown outcome.
    unsettled: bool,
}

/// The size of a row, which is not verified.
const PLAIN: [&str; 2] = ["size_bytes", "CAST(NULL AS BIGINT)"];

/// A lost copy counts what is left of it; its bytes should be those of the content.
const OF_CONTENT: [&str; 2] = [
    "CASE state WHEN 'lost' THEN (SELECT c.size_bytes FROM contents c WHERE c.id = object_locations.content_id) \
     ELSE size_bytes END",
    "verified_at",
];

/// Locations come first because there may be many: a check of two tables runs for each row of the later one.
pub(super) const NAMING: &[Naming] = &[
    Naming {
        table: "object_locations",
        only: "1 = 1",
        kind: "CASE state WHEN 'lost' THEN 'lost' ELSE 'location' END",
        target: OBJECT_TARGET,
        names_all: false,
        unindexed: "size_bytes",
        compared: OF_CONTENT,
        counter: Some("used"),
        unsettled: false,
    },
    Naming {
        table: "cleanup_queue",
        only: "1 = 1",
        kind: "'cleanup'",
        target: "target",
        names_all: false,
        unindexed: "size_bytes",
        compared: PLAIN,
        counter: Some("orphan"),
        unsettled: true,
    },
    Naming {
        table: "cleanup_dlq",
        only: "1 = 1",
        kind: "'dead_letter'",
        target: "target",
        names_all: false,
        unindexed: "size_bytes",
        compared: PLAIN,
        counter: Some("orphan"),
        // Its write may never have arrived; no probe has shown it yet.
        unsettled: true,
    },
    Naming {
        table: "findings",
        only: "kind = 'written_off'",
        kind: "'written_off'",
        target: "target",
        names_all: false,
        unindexed: "size_bytes",
        compared: PLAIN,
        counter: None,
        // An operator may have deleted the bytes.
        unsettled: true,
    },
    Naming {
        table: "pending_objects",
        // Pins name no bytes.
        only: "backend_name IS NOT NULL",
        kind: "'intent'",
        target: "''",
        names_all: true,
        unindexed: "size_bytes",
        compared: PLAIN,
        counter: Some("reserved"),
        unsettled: true,
    },
];

const COUNTERS: [&str; 3] = ["used", "orphan", "reserved"];

fn united(selects: impl Iterator<Item = String>) -> String {
    selects.collect::<Vec<_>>().join(" UNION ALL ")
}

/// The rows that name any of the keys `$2` on the backend `$1`.
pub(super) static NAMED: LazyLock<String> = LazyLock::new(|| named(|_, column| column.to_owned()));

/// The same, read from the tables and not from an index.
pub(crate) static NAMED_BY_TABLE: LazyLock<String> = LazyLock::new(|| named(unindexed));

fn unindexed(naming: &Naming, column: &str) -> String {
    format!("UNINDEXED({column}; {})", naming.unindexed)
}

fn named(column: impl Fn(&Naming, &str) -> String) -> String {
    united(NAMING.iter().map(|naming| {
        let Naming { table, only, kind, target, .. } = naming;
        let (backend, key) = (column(naming, "backend_name"), column(naming, "physical_key"));
        format!(
            "SELECT physical_key, {kind} AS kind, size_bytes, {target} AS target FROM {table} \
             WHERE {backend} = $1 AND {key} IN TEXTS($2) AND {only}"
        )
    }))
}

/// SQL that is true if two targets under one physical key may be the same bytes: `Target::may_be` of the model.
fn may_be(one: &str, other: &str) -> String {
    let key_of = |key: &str, of: &str| format!("({key} = '' AND {})", is_object(of));
    let upload_of = |lost: &str, of: &str| format!("({lost} = 'upload' AND substr({of}, 1, 7) = 'upload:')");
    let (keys, uploads) = ([key_of(one, other), key_of(other, one)], [upload_of(one, other), upload_of(other, one)]);
    format!("({one} = {other} OR {} OR {})", keys.join(" OR "), uploads.join(" OR "))
}

/// SQL that is true if no row on backend `$1` names target `target` of key `key`.
pub(crate) fn nothing_names(key: &str, target: &str) -> String {
    let none = NAMING.iter().map(|naming| {
        let names = if naming.names_all { "1 = 1".to_owned() } else { may_be(naming.target, target) };
        let Naming { table, only, .. } = naming;
        format!(
            "NOT EXISTS (SELECT 1 FROM {table} WHERE backend_name = $1 AND physical_key = {key} AND {only} AND {names})"
        )
    });
    none.collect::<Vec<_>>().join(" AND ")
}

/// SQL that is true if no row on backend `$1` names the draft `key`: its name is the identifier of the key that is
/// written. A location names none, since its bytes are complete.
pub(crate) fn nothing_names_draft(key: &str) -> String {
    let none = NAMING.iter().filter(|naming| naming.counter != Some("used")).map(|Naming { table, only, .. }| {
        let identifier = "substr(physical_key, length(physical_key) - 31)";
        format!(
            "NOT EXISTS (SELECT 1 FROM {table} WHERE backend_name = $1 \
             AND {identifier} = substr({key}, length({key}) - 31) AND {only})"
        )
    });
    none.collect::<Vec<_>>().join(" AND ")
}

/// SQL that is true if the rows `r` of a table and `e` of another one name the same bytes.
pub(super) fn name_the_same(later: &Naming, earlier: &Naming) -> String {
    if later.names_all || earlier.names_all {
        return "1 = 1".to_owned();
    }
    let of = |naming: &Naming, row: &str| match naming.target {
        "target" => format!("{row}.target"),
        _ => OBJECT_TARGET.replace("backend_version", &format!("{row}.backend_version")),
    };
    may_be(&of(later, "r"), &of(earlier, "e"))
}

/// Those of the IDs `$2` that end a physical key on the backend `$1`. Locations are excluded: no counter includes a
/// temporary file of committed bytes.
pub(super) static IDENTIFIED: LazyLock<String> = LazyLock::new(|| identified(|_, column| column.to_owned()));

/// The same, read from the tables and not from an index.
pub(super) static IDENTIFIED_BY_TABLE: LazyLock<String> = LazyLock::new(|| identified(unindexed));

fn identified(column: impl Fn(&Naming, &str) -> String) -> String {
    let tables = NAMING.iter().filter(|naming| naming.counter != Some("used"));
    united(tables.map(|naming| {
        let Naming { table, only, .. } = naming;
        let (backend, key) = (column(naming, "backend_name"), column(naming, "physical_key"));
        let last = format!("substr({key}, length({key}) - 31)");
        format!("SELECT {last} AS identifier FROM {table} WHERE {backend} = $1 AND {last} IN TEXTS($2) AND {only}")
    }))
}

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
