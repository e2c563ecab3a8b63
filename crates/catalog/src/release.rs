//! Releasing references: the count goes down, and content without a reference, by count and by rows, is condemned: its
//! locations become cleanups and its bytes move from used to orphan.
//!
//! Every unit that releases content uses these statements. The selector names the contents by a marker that neither
//! time nor other units can change. See "Add an operation that releases content" in CONTRIBUTING.md.

use s3o_model::cleanup::Reason;
use s3o_model::ids::{ContentId, WriteId};

use crate::cleanups::enqueue::enqueue_cleanups;
use crate::copies::MAY_EXIST;
use crate::driver::dialect::params_of;
use crate::params;
use crate::quotas::{Counter, lock_quota_rows, move_bytes};
use crate::unit::{LockRank, Unit, Value};

/// The statements that release the contents a selector names.
pub(crate) struct Release {
    lock: String,
    lock_with: String,
    lock_quota_rows: String,
    count_down: String,
    condemn: String,
    enqueue: String,
    move_bytes: String,
    delete_locations: String,
}

/// Which references are released, in SQL. The first parameters are the selector's own; the next one is the reason of
/// the cleanups.
pub(crate) struct Selector {
    /// A table and a condition: one row for each released reference.
    pub referrers: &'static str,
    /// The column that names the content.
    pub column: &'static str,
    /// True for rows of `objects o` that the unit is about to delete.
    pub deleted_objects: &'static str,
    /// True for rows of `content_parts p` that the unit is about to delete.
    pub deleted_pieces: &'static str,
    /// True for rows of `multipart_parts m` that the unit is about to delete.
    pub deleted_parts: &'static str,
    /// True for rows of `pending_objects q` that the unit is about to delete.
    pub deleted_pins: &'static str,
    /// True for rows of `trash_objects x` that the unit is about to delete.
    pub deleted_trash: &'static str,
}

const NONE: &str = "1 = 0";

/// The rest of a selector whose unit deletes no referring row later.
pub(crate) const DELETES_NOTHING: Selector = Selector {
    referrers: "",
    column: "",
    deleted_objects: NONE,
    deleted_pieces: NONE,
    deleted_parts: NONE,
    deleted_pins: NONE,
    deleted_trash: NONE,
};

/// Condition on `contents`: no row refers to it, apart from the rows that the unit deletes.
fn unreferenced(selector: &Selector) -> String {
    let referring = [
        ("objects o", "o.content_id", selector.deleted_objects),
        ("content_parts p", "p.whole_id", selector.deleted_pieces),
        ("multipart_parts m", "m.content_id", selector.deleted_parts),
        ("pending_objects q", "q.pin_content_id", selector.deleted_pins),
        ("trash_objects x", "x.content_id", selector.deleted_trash),
    ];
    let none = referring.map(|(table, column, deleted)| {
        format!("NOT EXISTS (SELECT 1 FROM {table} WHERE {column} = contents.id AND NOT ({deleted}))")
    });
    none.join(" AND ")
}

impl Release {
    pub(crate) fn of(selector: &Selector) -> Self {
        let Selector { referrers, column, .. } = selector;
        let unreferenced = unreferenced(selector);
        let ids = format!("SELECT {column} FROM {referrers}");
        let reason = format!("${}", params_of(referrers) + 1);
        let write = format!("${}", params_of(referrers) + 2);
        let ids_and_one = format!("{ids} UNION ALL SELECT CAST({reason} AS TEXT)");
        // Not `= 'condemned'`: a database with old statistics would search the index of condemned contents, and so read
        // all that was condemned within the last hour, for every batch.
        let condemned = format!(
            "object_locations WHERE content_id IN \
             (SELECT c.id FROM contents c WHERE c.id IN ({ids}) AND c.state <> 'live' AND c.kind = 'whole')"
        );
        Self {
            lock: format!("SELECT id FROM contents WHERE id IN ({ids}) ORDER BY id /*lock*/"),
            lock_with: format!("SELECT id FROM contents WHERE id IN ({ids_and_one}) ORDER BY id /*lock*/"),
            lock_quota_rows: lock_quota_rows(&format!(
                "object_locations WHERE content_id IN ({ids_and_one}) \
                 UNION ALL SELECT backend_name, stripe FROM pending_objects WHERE write_id = {write}"
            )),
            count_down: format!(
                "UPDATE contents SET ref_count = ref_count - s.n \
                 FROM (SELECT {column} AS c, count(*) AS n FROM {referrers} GROUP BY {column}) s \
                 WHERE s.c = contents.id"
            ),
            // The rows confirm the count: a count that is too low must not delete bytes.
            condemn: format!(
                "UPDATE contents SET state = 'condemned', condemned_at = :now \
                 WHERE id IN ({ids}) AND ref_count = 0 AND state = 'live' AND {unreferenced} RETURNING id"
            ),
            enqueue: enqueue_cleanups(&format!("{condemned} AND {MAY_EXIST}"), &reason, None),
            move_bytes: move_bytes(Counter::Used, Some(Counter::Orphan), &condemned),
            delete_locations: format!("DELETE FROM {condemned}"),
        }
    }

    /// Locks the contents, before the unit takes references of its own.
    pub(crate) fn lock_contents(&'static self, unit: &mut Unit, selector: &[Value]) {
        unit.lock(LockRank::Content, &self.lock, selector.to_vec());
    }

    /// The same, together with content that the unit is about to refer to.
    pub(crate) fn lock_contents_and(&'static self, unit: &mut Unit, selector: &[Value], content: ContentId) {
        let mut values = selector.to_vec();
        values.extend(params![content]);
        unit.lock(LockRank::Content, &self.lock_with, values);
    }

    /// Locks the quota rows that the unit is about to change: those of the released contents, of the content that it
    /// `added`, and of the reservations of `write`.
    pub(crate) fn lock_quota_rows(
        &'static self,
        unit: &mut Unit,
        selector: &[Value],
        added: Option<ContentId>,
        write: Option<WriteId>,
    ) {
        let mut values = selector.to_vec();
        values.extend(params![added, write]);
        unit.lock(LockRank::Quota, &self.lock_quota_rows, values);
    }

    /// Locks the contents and their quota rows, and releases the references.
    pub(crate) fn lock_and_release(&'static self, unit: &mut Unit, selector: &[Value], reason: Reason) {
        self.lock_contents(unit, selector);
        self.lock_quota_rows(unit, selector, None, None);
        self.release(unit, selector, reason);
    }

    /// Releases the references. The unit itself deletes the referring rows, or has replaced them.
    pub(crate) fn release(&'static self, unit: &mut Unit, selector: &[Value], reason: Reason) {
        unit.run(&self.count_down, selector.to_vec());
        self.condemn(unit, selector, reason);
    }

    /// Condemns the contents without a reference, by count and by rows.
    pub(crate) fn condemn(&'static self, unit: &mut Unit, selector: &[Value], reason: Reason) {
        let mut values = selector.to_vec();
        values.extend(params![reason.as_str()]);
        let condemned = unit.run(&self.condemn, values.clone());
        unit.condemning.push(condemned);
        for sql in [&self.enqueue, &self.move_bytes, &self.delete_locations] {
            unit.run(sql, values.clone());
        }
    }
}
