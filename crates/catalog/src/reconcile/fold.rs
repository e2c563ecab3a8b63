//! The findings of a valid pass replace those of the pass before, in bounded steps. A step that is repeated changes
//! nothing, so any instance continues after a crash.

use super::ReconcilePass;
use super::pages::WRITTEN_OFF;
use crate::error::{Error, Verdict};
use crate::unit::{Unit, json};
use crate::{Catalog, params};

/// Number of rows in one step.
const STEP: usize = 500;

/// Kind of the finding that an operator approves if a pass found too much.
pub(super) const HELD: &str = "held";

const FOLDING: &str = "SELECT id FROM reconcile_passes WHERE id = $1 AND state = 'folding'";

/// Bytes that were written again are another finding: first seen now, neither approved nor dismissed.
const DROP_CHANGED: &str = "DELETE FROM findings WHERE id IN (SELECT f.id FROM reconcile_findings s \
     JOIN findings f ON f.backend_name = s.backend_name AND f.physical_key = s.physical_key AND f.target = s.target \
     AND f.kind = s.kind WHERE s.pass_id = $1 AND s.id <= $2 \
     AND (s.size_bytes <> f.size_bytes OR s.fingerprint <> f.fingerprint))";

/// A first pass whose clock was ahead counts from now.
const FOLD: &str = "INSERT INTO findings (kind, backend_name, physical_key, target, size_bytes, detail, created_at, \
     pass_id, fingerprint, first_seen_at, seen_at, passes, born_at) \
     SELECT s.kind, s.backend_name, s.physical_key, s.target, s.size_bytes, s.detail, :now, p.id, s.fingerprint, \
     p.cut_off, p.cut_off, 1, s.born_at FROM reconcile_findings s JOIN reconcile_passes p ON p.id = s.pass_id \
     WHERE s.pass_id = $1 AND s.id <= $2 AND s.kind <> 'written_off' \
     ON CONFLICT (backend_name, physical_key, target, kind) DO UPDATE SET pass_id = excluded.pass_id, \
     seen_at = excluded.seen_at, passes = findings.passes + 1, detail = excluded.detail, first_seen_at = \
     CASE WHEN findings.first_seen_at > excluded.seen_at THEN excluded.seen_at ELSE findings.first_seen_at END";

const CLOSE_WRITTEN_OFF: &str = "DELETE FROM findings WHERE id IN (SELECT f.id FROM reconcile_findings s \
     JOIN findings f ON f.backend_name = s.backend_name AND f.physical_key = s.physical_key AND f.target = s.target \
     AND f.kind = s.kind WHERE s.pass_id = $1 AND s.id <= $2 AND s.kind = $3)";

const UNSTAGE: &str = "DELETE FROM reconcile_findings WHERE pass_id = $1 AND id <= $2";

/// Findings that this pass did not see.
const DROP_UNSEEN: &str = "DELETE FROM findings WHERE id IN (SELECT id FROM findings WHERE backend_name = $1 \
     AND pass_id < $2 ORDER BY pass_id, id LIMIT $3)";

const HOLD: &str = "INSERT INTO findings (kind, backend_name, physical_key, target, size_bytes, detail, created_at, \
     pass_id, first_seen_at, seen_at, passes) SELECT 'held', backend_name, '', '', 0, CAST($2 AS TEXT), :now, \
     id, cut_off, cut_off, 1 FROM reconcile_passes WHERE id = $1";

/// The approval of a held pass covers findings with smaller IDs, so that a new pass needs a new row.
const END_EARLIER_HOLD: &str = "DELETE FROM findings WHERE backend_name = $1 AND kind = 'held'";

const ACT: &str = "UPDATE reconcile_passes SET state = 'acting', position = '0', updated_at = :now WHERE id = $1 \
     AND state = 'folding' AND NOT EXISTS (SELECT 1 FROM reconcile_findings s WHERE s.pass_id = $1) \
     AND NOT EXISTS (SELECT 1 FROM findings f WHERE f.backend_name = reconcile_passes.backend_name AND f.pass_id < $1)";

impl Catalog {
    /// Moves some findings of a valid pass to their place. False once all are there and those that it did not see are
    /// dropped; the pass is then acting.
    pub async fn fold_pass(&self, pass: &ReconcilePass) -> Result<bool, Error> {
        const NEXT: &str = "SELECT id FROM reconcile_findings WHERE pass_id = $1 ORDER BY id LIMIT $2";
        let staged = self.read(NEXT, params![pass.id, STEP]).await?;
        match staged.last() {
            Some(last) => self.fold_findings(pass, last.int("id")?).await.map(|()| true),
            None => self.end_folding(pass).await,
        }
    }

    async fn fold_findings(&self, pass: &ReconcilePass, upto: i64) -> Result<(), Error> {
        let mut unit = Unit::new("fold_pass");
        unit.one(FOLDING, params![pass.id], Verdict::RunAgain);
        for sql in [DROP_CHANGED, FOLD, CLOSE_WRITTEN_OFF, UNSTAGE] {
            unit.run(sql, params![pass.id, upto, WRITTEN_OFF]);
        }
        self.write(unit).await.map(drop)
    }

    async fn end_folding(&self, pass: &ReconcilePass) -> Result<bool, Error> {
        let mut unit = Unit::new("end_folding");
        unit.one(FOLDING, params![pass.id], Verdict::RunAgain);
        if let Some(why) = &pass.held {
            unit.run(END_EARLIER_HOLD, params![&pass.backend]);
            unit.run(HOLD, params![pass.id, json(&serde_json::json!({ "reason": why }))]);
        }
        unit.run(DROP_UNSEEN, params![&pass.backend, pass.id, STEP]);
        let acts = unit.run(ACT, params![pass.id]);
        Ok(self.write(unit).await?[acts].changed == 0)
    }

    /// Deletes staged findings and folder counts of passes that ended without them; false if there were none. A bounded
    /// step.
    pub async fn forget_staged(&self) -> Result<bool, Error> {
        const UNFINISHED: &str = "(SELECT id FROM reconcile_passes WHERE state IN ('open', 'folding'))";
        static SQL: std::sync::LazyLock<[String; 2]> = std::sync::LazyLock::new(|| {
            [
                format!(
                    "DELETE FROM reconcile_findings WHERE id IN (SELECT id FROM reconcile_findings \
                     WHERE pass_id NOT IN {UNFINISHED} ORDER BY id LIMIT $1)"
                ),
                "DELETE FROM reconcile_folders WHERE pass_id NOT IN (SELECT id FROM reconcile_passes)".to_owned(),
            ]
        });
        let mut unit = Unit::new("forget_staged");
        for sql in SQL.iter() {
            unit.run(sql, params![STEP]);
        }
        Ok(self.write(unit).await?[0].changed > 0)
    }
}
