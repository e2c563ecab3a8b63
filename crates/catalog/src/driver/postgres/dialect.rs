//! Translation of the common dialect to PostgreSQL's.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::driver::dialect::{params_of, respell};
use crate::unit::Columns;

/// The catalog's clock in milliseconds. It is a sub-select because PostgreSQL does not use an index for a comparison
/// with a volatile function.
const NOW: &str = "(SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint)";

/// The clock of `:now`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    /// The database's, so that instances need not agree on the time.
    Database,
    /// A parameter after those of the statement, for tests with a clock of their own.
    Bound,
}

/// A statement in PostgreSQL's dialect.
#[derive(Debug)]
pub(super) struct Translated {
    pub sql: String,
    /// Number of the caller's parameters that the statement mentions.
    pub params: usize,
    /// True if the clock is bound after them.
    pub binds_clock: bool,
    /// Set when the statement is first prepared.
    pub columns: OnceLock<Arc<Columns>>,
}

/// Translated statements, by their text in the common dialect.
#[derive(Debug)]
pub(super) struct Dialect {
    now: Now,
    known: RwLock<HashMap<&'static str, Arc<Translated>>>,
}

impl Dialect {
    pub(super) fn new(now: Now) -> Self {
        Self { now, known: RwLock::default() }
    }

    pub(super) fn of(&self, sql: &'static str) -> Arc<Translated> {
        if let Some(known) = self.known.read().get(sql) {
            return Arc::clone(known);
        }
        let translated = Arc::new(to_postgres(sql, self.now));
        self.known.write().insert(sql, Arc::clone(&translated));
        translated
    }
}

fn to_postgres(sql: &str, now: Now) -> Translated {
    let params = params_of(sql);
    let binds_clock = now == Now::Bound && sql.contains(":now");
    let clock = if binds_clock { format!("${}::bigint", params + 1) } else { NOW.to_owned() };
    let mut out = sql
        .replace(":now", &clock)
        .replace("/*lock*/", "FOR NO KEY UPDATE")
        .replace("/*share*/", "FOR SHARE")
        .replace("/*skip*/", "FOR NO KEY UPDATE SKIP LOCKED");
    // The session that reads by table disables index scans.
    out =
        respell(&out, "UNINDEXED", |columns| columns.split_once(';').map_or(columns, |(column, _)| column).to_owned());
    let elements = |list: &str| format!("jsonb_array_elements({list}::text::jsonb)");
    out = respell(&out, "json_each", elements);
    out = respell(&out, "TEXTS", |list| format!("(SELECT value #>> '{{}}' FROM {})", elements(list)));
    out = respell(&out, "NUMBERS", |list| format!("(SELECT (value #>> '{{}}')::bigint FROM {})", elements(list)));
    Translated { sql: out, params, binds_clock, columns: OnceLock::new() }
}

#[cfg(test)]
mod tests {
    use super::{Now, to_postgres};

    #[test]
    fn locks_and_lists_are_spelt_out() {
        let spelt = to_postgres("SELECT id FROM t WHERE id IN NUMBERS($2) /*skip*/", Now::Database);
        assert_eq!(
            spelt.sql,
            "SELECT id FROM t WHERE id IN (SELECT (value #>> '{}')::bigint FROM \
             jsonb_array_elements($2::text::jsonb)) FOR NO KEY UPDATE SKIP LOCKED"
        );
    }

    #[test]
    fn the_clock_is_the_databases_unless_a_test_binds_one() {
        assert!(to_postgres("SELECT :now", Now::Database).sql.contains("clock_timestamp()"));
        let bound = to_postgres("SELECT $1, :now", Now::Bound);
        assert_eq!((bound.sql.as_str(), bound.params, bound.binds_clock), ("SELECT $1, $2::bigint", 1, true));
    }
}
