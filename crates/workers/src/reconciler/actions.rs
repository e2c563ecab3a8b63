//! Acts on the findings of a valid pass: queues bytes that no row names, and stops trusting locations.

use s3o_backend::{Probe, SharedBackend};
use s3o_catalog::{ReconcilePass, StandingFinding, UNNAMED_UNIT_MAX, UNNAMED_WAITING_MAX, UnnamedKey};
use s3o_model::ids::ClaimToken;
use s3o_model::reconcile::{ActionRules, FindingAction, FindingKind};

use super::ReconcilerWorker;
use crate::{Error, Report};

impl ReconcilerWorker {
    /// Acts on the next findings; true if there may be more, and the queue has capacity.
    pub(super) async fn act(
        &self,
        backend: &SharedBackend,
        pass: &ReconcilePass,
        report: &mut Report,
    ) -> Result<bool, Error> {
        let grace = self.settings.current().grace;
        let after = pass.position.parse().unwrap_or(0);
        let page = match self.catalog.action_page(pass, after, (grace, UNNAMED_UNIT_MAX)).await {
            Err(error) if error.verdict().is_some() => return Ok(false),
            page => page?,
        };
        let Some(last) = page.findings.last() else {
            return self.advance(pass, after, true).await.map(|_| false);
        };
        for found in page.findings.iter().filter(|found| action(found, &page.rules) == FindingAction::Suspect) {
            self.distrust_location(backend, found, report).await?;
        }
        let removed: Vec<&StandingFinding> =
            page.findings.iter().filter(|found| action(found, &page.rules) == FindingAction::Remove).collect();
        match self.remove(backend, (pass, &removed), report).await {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            // An operator cancelled the pass, or accepts or removes the backend.
            Err(Error::Catalog(error)) if error.verdict().is_some() => return Ok(false),
            Err(error) => return Err(error),
        }
        self.advance(pass, last.id, false).await
    }

    /// Queues bytes that still no row names; false if as many wait for deletion as may.
    async fn remove(
        &self,
        backend: &SharedBackend,
        (pass, found): (&ReconcilePass, &[&StandingFinding]),
        report: &mut Report,
    ) -> Result<bool, Error> {
        let keys: Vec<UnnamedKey> = found.iter().map(|found| unnamed(found)).collect();
        if keys.is_empty() {
            return Ok(true);
        }
        let name = backend.name();
        let confirmed = self.catalog.confirm_unnamed(name, &keys).await?;
        let token = ClaimToken::new(self.ids.fresh());
        let queued = self.catalog.enqueue_found(pass, &confirmed, token).await?;
        if !queued.is_empty() {
            tracing::info!(backend = %name, keys = queued.len(), "bytes that no row names queued for deletion");
            for _ in &queued {
                report.count_at("queued", name);
            }
            self.cleanup_wakeup.notify_one();
        }
        let is_complete = queued.len() == confirmed.len();
        Ok(is_complete || self.catalog.waiting_removals(name, UNNAMED_WAITING_MAX).await? < UNNAMED_WAITING_MAX)
    }

    /// False if another instance advanced the pass.
    async fn advance(&self, pass: &ReconcilePass, after: i64, done: bool) -> Result<bool, Error> {
        match self.catalog.advance_actions(pass, after, done).await {
            Ok(()) => Ok(true),
            Err(error) if error.verdict().is_some() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Stops trusting a location if a probe finds once more that its bytes are missing or of another size. If no other
    /// copy of the content may be good, the content is lost.
    async fn distrust_location(
        &self,
        backend: &SharedBackend,
        found: &StandingFinding,
        report: &mut Report,
    ) -> Result<(), Error> {
        let Some(located) = self.catalog.located_content(backend.name(), &found.physical_key).await? else {
            return Ok(());
        };
        let found_bytes = match (found.evidence.kind, backend.probe(located.copy.key_version()).await) {
            (FindingKind::Missing, Probe::Absent) => 0,
            (FindingKind::WrongSize, Probe::Present(present)) if present.size_bytes != located.size_bytes => {
                present.size_bytes
            }
            _ => return Ok(()),
        };
        if self.catalog.suspect(located.content, &located.copy).await? {
            report.count_at("suspect", backend.name());
        }
        if self.catalog.lose_copy(located.content, &located.copy, found_bytes).await? {
            let (name, key) = (backend.name(), &found.physical_key);
            tracing::error!(backend = %name, key, content = %located.content, "content lost, no copy of it is good");
            report.count_at("lost", name);
        }
        Ok(())
    }

    /// Reads a lost copy whose bytes are there again, and trusts it if they are the right ones.
    pub(super) async fn recover(&self, backend: &SharedBackend, key: &str, report: &mut Report) -> Result<(), Error> {
        let Some(located) = self.catalog.located_content(backend.name(), key).await? else { return Ok(()) };
        if self.engine.recover_copy(&located).await? {
            tracing::info!(backend = %backend.name(), key, content = %located.content, "lost copy found again");
            report.count_at("recovered", backend.name());
        }
        Ok(())
    }
}

fn unnamed(found: &StandingFinding) -> UnnamedKey {
    let StandingFinding { physical_key, target, size_bytes, .. } = found.clone();
    UnnamedKey { physical_key, target, size_bytes, expected: None }
}

fn action(found: &StandingFinding, rules: &ActionRules) -> FindingAction {
    FindingAction::of(&found.evidence, rules)
}
