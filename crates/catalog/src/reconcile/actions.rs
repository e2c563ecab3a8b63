//! The findings of a valid pass, page by page, with what decides whether they are acted on.

use s3o_model::names::BackendName;
use s3o_model::reconcile::{ActionRules, Evidence};
use s3o_model::target::Target;
use std::time::Duration;

use super::ReconcilePass;
use crate::error::{Error, Verdict};
use crate::unit::{Row, Unit};
use crate::{Catalog, params};

/// A finding of the last valid pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingFinding {
    /// Identifier of the finding.
    pub id: i64,
    /// Key on the backend.
    pub physical_key: String,
    /// What it is about, under the key.
    pub target: Target,
    /// Length of the bytes.
    pub size_bytes: u64,
    /// What passes and operators say about it.
    pub evidence: Evidence,
}

/// Some findings of a pass, in the order of their IDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionPage {
    /// The findings; empty after the last one.
    pub findings: Vec<StandingFinding>,
    /// What holds for all of them.
    pub rules: ActionRules,
}

const RULES: &str = "SELECT b.accepted_at, p.held_reason FROM reconcile_passes p \
     JOIN backends b ON b.name = p.backend_name WHERE p.id = $1 AND p.state = 'acting'";

const PAGE: &str = "SELECT f.id, f.kind, f.physical_key, f.target, f.size_bytes, f.first_seen_at, f.seen_at, f.passes, \
     f.born_at, f.dismissed, CASE WHEN f.approved = 1 OR f.id <= b.approved_finding THEN 1 ELSE 0 END AS approved \
     FROM findings f JOIN backends b ON b.name = f.backend_name \
     WHERE f.backend_name = $1 AND f.pass_id = $2 AND f.id > $3 AND f.kind <> 'held' AND f.kind <> 'foreign' \
     ORDER BY f.id LIMIT $4";

fn standing(row: &Row) -> Result<StandingFinding, Error> {
    let (kind, target) = (row.text("kind")?, row.text("target")?);
    let unknown = |what: &str| Error::Corrupt(format!("unknown finding {what:?}"));
    Ok(StandingFinding {
        id: row.int("id")?,
        physical_key: row.string("physical_key")?,
        target: Target::from_column(target).ok_or_else(|| unknown(target))?,
        size_bytes: row.size("size_bytes")?,
        evidence: Evidence {
            kind: kind.parse().map_err(|_| unknown(kind))?,
            passes: row.size("passes")?,
            first_seen_at: row.time("first_seen_at")?,
            seen_at: row.time("seen_at")?,
            born_at: row.opt_time("born_at")?,
            is_approved: row.int("approved")? == 1,
            is_dismissed: row.int("dismissed")? == 1,
        },
    })
}

impl Catalog {
    /// The next findings of a pass that is acting, and the rules for them. Fails as `RunAgain` if it ended.
    pub async fn action_page(
        &self,
        pass: &ReconcilePass,
        after: i64,
        (grace, limit): (Duration, usize),
    ) -> Result<ActionPage, Error> {
        let rules = self.read(RULES, params![pass.id]).await?;
        let rules = rules.first().ok_or(Error::Guard(Verdict::RunAgain))?;
        let rules = ActionRules {
            grace,
            accepted_at: rules.opt_time("accepted_at")?,
            is_held: rules.opt_text("held_reason")?.is_some(),
        };
        let rows = self.read(PAGE, params![&pass.backend, pass.id, after, limit]).await?;
        Ok(ActionPage { findings: rows.iter().map(standing).collect::<Result<_, _>>()?, rules })
    }

    /// Records how far the findings of a pass were acted on; `done` once all were. Fails as `RunAgain` if another
    /// instance did, or if the pass ended.
    pub async fn advance_actions(&self, pass: &ReconcilePass, after: i64, done: bool) -> Result<(), Error> {
        let mut unit = Unit::new("advance_actions");
        unit.one(
            "UPDATE reconcile_passes SET position = $3, updated_at = :now, \
             state = CASE WHEN $4 = 1 THEN 'done' ELSE state END, ended_at = CASE WHEN $4 = 1 THEN :now END \
             WHERE id = $1 AND position = $2 AND state = 'acting'",
            params![pass.id, &pass.position, after.to_string(), i64::from(done)],
            Verdict::RunAgain,
        );
        self.write(unit).await.map(drop)
    }

    /// Number of cleanups of a backend that reconcile queued and that are not deleted yet, counted up to `max`.
    pub async fn waiting_removals(&self, backend: &BackendName, max: usize) -> Result<usize, Error> {
        const WAITING: &str = "SELECT count(*) AS n FROM (SELECT 1 FROM cleanup_queue WHERE backend_name = $1 \
             AND reason = 'reconcile' LIMIT $2) AS waiting";
        let waiting = self.read(WAITING, params![backend, max]).await?[0].size("n")?;
        Ok(usize::try_from(waiting).unwrap_or(usize::MAX))
    }
}
