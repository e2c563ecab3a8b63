//! Decisions of operators: findings that are approved or dismissed, and backends that are accepted or removed, whose
//! passes and findings are about another store.

use s3o_model::names::BackendName;
use s3o_model::reconcile::FindingKind;

use super::fold::HELD;
use crate::cleanups::unnamed::lock_shared;
use crate::error::Error;
use crate::unit::Unit;
use crate::{Catalog, params};

/// What an operator decides about a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Act on it without waiting for another pass.
    Approve,
    /// Leave the bytes as they are and do not report them again.
    Dismiss,
}

/// Why a decision changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionRefused {
    /// No finding has this ID: it was dropped, or its bytes are queued for deletion.
    NoSuchFinding,
    /// Nothing can be decided about findings of this kind.
    Kind(String),
}

/// What was found and approved stays acted on by the newest pass only.
const ACT_AGAIN: &str = "UPDATE reconcile_passes SET state = 'acting', position = '0', ended_at = NULL, \
     updated_at = :now WHERE id = (SELECT pass_id FROM findings WHERE id = $1) AND state IN ('acting', 'done') \
     AND id = (SELECT max(n.id) FROM reconcile_passes n WHERE n.backend_name = reconcile_passes.backend_name \
     AND n.state IN ('acting', 'done'))";

const APPROVE: &str = "UPDATE findings SET approved = 1, dismissed = 0 WHERE id = $1";

const DISMISS: &str = "UPDATE findings SET dismissed = 1, approved = 0 WHERE id = $1";

/// Approves everything that the passes of the backend found until this one was held, and nothing that a later pass
/// stores while the operator decides.
const APPROVE_ALL: &str = "UPDATE backends SET approved_finding = CAST($1 AS BIGINT) \
     WHERE name = (SELECT backend_name FROM findings WHERE id = $1)";

const END_HOLD: &str =
    "UPDATE reconcile_passes SET held_reason = NULL WHERE id = (SELECT pass_id FROM findings WHERE id = $1)";

const FORGET: &str = "DELETE FROM findings WHERE id = $1";

/// Adds the statements that drop what passes found on backend `$1`: it was another store.
pub(crate) fn discard_passes(unit: &mut Unit, backend: &BackendName) {
    unit.run(
        "UPDATE reconcile_passes SET state = 'discarded', ended_at = :now, \
         reason = 'the backend was accepted or removed' \
         WHERE backend_name = $1 AND state IN ('open', 'folding', 'acting', 'done')",
        params![backend],
    );
    unit.run("DELETE FROM findings WHERE backend_name = $1 AND pass_id IS NOT NULL", params![backend]);
    unit.run("UPDATE backends SET approved_finding = 0 WHERE name = $1", params![backend]);
}

impl Catalog {
    /// Decides about a finding of a pass, or about all of a pass that found too much.
    pub async fn decide_finding(&self, id: i64, decision: Decision) -> Result<Result<(), DecisionRefused>, Error> {
        const KIND: &str = "SELECT kind, backend_name FROM findings WHERE id = $1 AND pass_id IS NOT NULL";
        const OTHER: &str = "SELECT kind FROM findings WHERE id = $1";
        let rows = self.read(KIND, params![id]).await?;
        let Some(row) = rows.first() else {
            let other = self.read(OTHER, params![id]).await?;
            return match other.first() {
                Some(row) => Ok(Err(DecisionRefused::Kind(row.string("kind")?))),
                None => Ok(Err(DecisionRefused::NoSuchFinding)),
            };
        };
        let kind = row.text("kind")?;
        let is_decidable = kind.parse::<FindingKind>().is_ok_and(FindingKind::can_be_decided);
        let statements: &[&'static str] = match decision {
            Decision::Approve if kind == HELD => &[APPROVE_ALL, END_HOLD, ACT_AGAIN, FORGET],
            Decision::Approve if is_decidable => &[APPROVE, ACT_AGAIN],
            Decision::Dismiss if is_decidable => &[DISMISS],
            Decision::Approve | Decision::Dismiss => return Ok(Err(DecisionRefused::Kind(kind.to_owned()))),
        };
        let mut unit = Unit::new("decide_finding");
        // The bytes of a dismissed finding are not queued beside its dismissal.
        lock_shared(&mut unit, &row.parse("backend_name")?);
        let answers: Vec<usize> = statements.iter().map(|sql| unit.run(sql, params![id])).collect();
        let done = self.write(unit).await?;
        // Removed since it was read.
        Ok(if done[answers[0]].changed == 0 { Err(DecisionRefused::NoSuchFinding) } else { Ok(()) })
    }
}
