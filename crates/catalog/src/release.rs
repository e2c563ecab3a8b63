//! Releasing references: what was let go of is counted down, recounted and, if nothing refers to
//! it any more, condemned; its locations become cleanups and its bytes move from used to orphan.
//!
//! Every unit that lets go of content uses these statements, so there is one way to do it. The
//! selector names the contents by a marker that neither time nor others can change.

use s3o_model::ids::{ContentId, WriteId};

use crate::driver::dialect::params_of;
use crate::params;
use crate::unit::{Unit, Value};

/// The statements that release the contents a selector names.
pub(crate) struct Release {
    lock: String,
    lock_with: String,
    enter: String,
    count_down: String,
    condemn: String,
    enqueue: String,
    rebook: String,
    forget: String,
}

/// Which rows are let go of, in SQL. The first parameters are the selector's own, the one
/// behind them is the reason for the cleanups.
pub(crate) struct Selector {
    /// A table and a condition with one row per reference that goes; `content` is its column.
    pub referrers: &'static str,
    /// That column's name.
    pub column: &'static str,
    /// True for rows of `objects o` that the unit is about to delete.
    pub dying_objects: &'static str,
    /// True for rows of `content_parts p` that the unit is about to delete.
    pub dying_pieces: &'static str,
    /// True for rows of `multipart_parts m` that the unit is about to delete.
    pub dying_parts: &'static str,
    /// True for rows of `pending_objects q` that the unit is about to delete.
    pub dying_pins: &'static str,
}

/// No row of that table is about to go.
pub(crate) const NONE: &str = "1 = 0";

/// True for contents `c` that are condemned. Put so that no index of what is condemned helps: a database that takes it for
/// few reads all that was condemned within the last hour, for every batch.
const CONDEMNED: &str = "c.state <> 'live'";

impl Release {
    pub(crate) fn of(selector: &Selector) -> Self {
        let Selector { referrers, column, dying_objects, dying_pieces, dying_parts, dying_pins } = selector;
        let ids = format!("SELECT {column} FROM {referrers}");
        let reason = format!("${}", params_of(referrers) + 1);
        let write = format!("${}", params_of(referrers) + 2);
        let condemned = format!(
            "object_locations l JOIN contents c ON c.id = l.content_id \
             WHERE c.id IN ({ids}) AND {CONDEMNED} AND c.kind = 'whole'"
        );
        Self {
            lock: format!("SELECT id FROM contents WHERE id IN ({ids}) ORDER BY id /*lock*/"),
            lock_with: format!(
                "SELECT id FROM contents WHERE id IN ({ids} UNION ALL SELECT CAST({reason} AS TEXT)) ORDER BY id /*lock*/"
            ),
            enter: format!(
                "SELECT stripe FROM backend_quotas WHERE (backend_name, stripe) IN (SELECT backend_name, stripe \
                 FROM object_locations WHERE content_id IN ({ids} UNION ALL SELECT CAST({reason} AS TEXT)) \
                 UNION ALL SELECT backend_name, stripe FROM pending_objects WHERE write_id = {write}) \
                 ORDER BY backend_name, stripe /*lock*/"
            ),
            count_down: format!(
                "UPDATE contents SET ref_count = ref_count - s.n \
                 FROM (SELECT {column} AS c, count(*) AS n FROM {referrers} GROUP BY {column}) s \
                 WHERE s.c = contents.id"
            ),
            // The count decides, the rows confirm it: a count that drifted must not kill bytes.
            condemn: format!(
                "UPDATE contents SET state = 'condemned', condemned_at = :now \
                 WHERE id IN ({ids}) AND ref_count = 0 AND state = 'live' \
                 AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.content_id = contents.id AND NOT ({dying_objects})) \
                 AND NOT EXISTS (SELECT 1 FROM content_parts p WHERE p.whole_id = contents.id AND NOT ({dying_pieces})) \
                 AND NOT EXISTS (SELECT 1 FROM multipart_parts m WHERE m.content_id = contents.id AND NOT ({dying_parts})) \
                 AND NOT EXISTS (SELECT 1 FROM pending_objects q WHERE q.pin_content_id = contents.id AND NOT ({dying_pins})) \
                 RETURNING id"
            ),
            enqueue: format!(
                "INSERT INTO cleanup_queue \
                 (backend_name, physical_key, backend_version, size_bytes, stripe, reason, due, created_at) \
                 SELECT l.backend_name, l.physical_key, l.backend_version, l.size_bytes, l.stripe, {reason}, :now, :now \
                 FROM {condemned}"
            ),
            rebook: format!(
                "UPDATE backend_quotas SET used_bytes = used_bytes - s.n, orphan_bytes = orphan_bytes + s.n \
                 FROM (SELECT l.backend_name AS b, l.stripe AS t, sum(l.size_bytes) AS n \
                 FROM {condemned} GROUP BY l.backend_name, l.stripe) s \
                 WHERE s.b = backend_quotas.backend_name AND s.t = backend_quotas.stripe"
            ),
            forget: format!(
                "DELETE FROM object_locations WHERE content_id IN \
                 (SELECT c.id FROM contents c WHERE c.id IN ({ids}) AND {CONDEMNED} AND c.kind = 'whole')"
            ),
        }
    }

    /// Locks the contents, before the unit takes references of its own.
    pub(crate) fn lock(&'static self, unit: &mut Unit, selector: &[Value]) {
        unit.lock(&self.lock, selector.to_vec());
    }

    /// The same, with content that the unit is about to refer to: all of them in one order.
    pub(crate) fn lock_with(&'static self, unit: &mut Unit, selector: &[Value], content: ContentId) {
        let mut values = selector.to_vec();
        values.extend(params![content]);
        unit.lock(&self.lock_with, values);
    }

    /// Locks the books that a unit is about to change, in order, where there may be several: what it releases, what it
    /// adds, and what a write has reserved. Units that took them as they come would block each other.
    pub(crate) fn enter(
        &'static self,
        unit: &mut Unit,
        selector: &[Value],
        added: Option<ContentId>,
        write: Option<WriteId>,
    ) {
        let mut values = selector.to_vec();
        values.extend(params![added, write]);
        unit.lock(&self.enter, values);
    }

    /// Locks what is let go of and its books, and lets go of it.
    pub(crate) fn release(&'static self, unit: &mut Unit, selector: &[Value], reason: s3o_model::cleanup::Reason) {
        self.lock(unit, selector);
        self.enter(unit, selector, None, None);
        self.add_to(unit, selector, reason);
    }

    /// Lets go of the references. The unit deletes or has replaced the referring rows itself.
    pub(crate) fn add_to(&'static self, unit: &mut Unit, selector: &[Value], reason: s3o_model::cleanup::Reason) {
        unit.run(&self.count_down, selector.to_vec());
        self.condemn(unit, selector, reason);
    }

    /// Condemns those that nothing refers to, by count and by rows.
    pub(crate) fn condemn(&'static self, unit: &mut Unit, selector: &[Value], reason: s3o_model::cleanup::Reason) {
        let mut values = selector.to_vec();
        values.extend(params![reason.as_str()]);
        let condemned = unit.run(&self.condemn, values.clone());
        unit.condemning.push(condemned);
        for sql in [&self.enqueue, &self.rebook, &self.forget] {
            unit.run(sql, values.clone());
        }
    }
}
