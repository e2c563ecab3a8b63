//! Continues a pass: lists pages while it is open, closes it, and puts its findings in the place of the earlier ones.

use s3o_backend::SharedBackend;
use s3o_catalog::{Error as CatalogError, PassPage, PassState, ReconcilePass, StagedFinding, Verdict};
use s3o_model::reconcile::{FindingKind, PassFault, identifier_time};
use s3o_model::target::Target;
use serde_json::json;
use tokio::time::Instant;

use super::{ReconcilerWorker, TICK_TIME};
use crate::walk::{BackendWalk, Difference, PageError, PagePosition, WalkedPage, keeps_versions};
use crate::{Error, Event, Report};

/// Number of failures in a row that end a pass.
const FAILURES_MAX: u64 = 5;

/// The pass, if it goes on at once. `None`: it ended, another instance continues it, or it goes on in a later tick.
type NextStep = Option<ReconcilePass>;

impl ReconcilerWorker {
    /// Works on a pass for a while; true if it should go on at once.
    pub(super) async fn continue_pass(
        &self,
        backend: &SharedBackend,
        mut pass: ReconcilePass,
        report: &mut Report,
    ) -> Result<bool, Error> {
        let started = Instant::now();
        match self.identity.store_fault(backend).await {
            Ok(None) => {}
            Ok(Some(fault)) => return self.distrust(&pass, &fault, report).await.map(|()| false),
            Err(error) => return self.note_failure(&pass, &error, report).await.map(|()| false),
        }
        loop {
            let step = match pass.state {
                PassState::Open => self.read_page(backend, pass, report).await,
                PassState::Folding => self.fold(pass, report).await,
                PassState::Acting => return self.act(backend, &pass, report).await,
                PassState::Done | PassState::Invalid | PassState::Cancelled | PassState::Discarded => return Ok(false),
            };
            match step {
                Ok(Some(next)) => pass = next,
                // Another instance continues the pass, or an operator ended it.
                Ok(None) | Err(Error::Catalog(CatalogError::Guard(Verdict::RunAgain))) => return Ok(false),
                Err(error) => return Err(error),
            }
            if started.elapsed() > TICK_TIME {
                return Ok(true);
            }
        }
    }

    /// Without the expected store, an open pass is invalid, and nothing is acted on.
    async fn distrust(&self, pass: &ReconcilePass, fault: &PassFault, report: &mut Report) -> Result<(), Error> {
        if pass.state == PassState::Open { self.invalidate(pass, fault, report).await } else { Ok(()) }
    }

    async fn read_page(
        &self,
        backend: &SharedBackend,
        pass: ReconcilePass,
        report: &mut Report,
    ) -> Result<NextStep, Error> {
        let at = PagePosition::from_text(&pass.position)?;
        if at == PagePosition::End {
            return self.close(backend, pass, report).await;
        }
        let keeps_versions = keeps_versions(&self.fleet, backend.name());
        let walk = BackendWalk { catalog: &self.catalog, backend, cut_off: pass.cut_off, keeps_versions };
        match walk.page(&at, &pass.counts).await {
            Ok(page) => self.store(backend, pass, page, report).await.map(Some),
            Err(PageError::Fault(fault)) => self.invalidate(&pass, &fault, report).await.map(|()| None),
            Err(PageError::Failed(error)) => self.note_failure(&pass, &error, report).await.map(|()| None),
        }
    }

    async fn store(
        &self,
        backend: &SharedBackend,
        pass: ReconcilePass,
        page: WalkedPage,
        report: &mut Report,
    ) -> Result<ReconcilePass, Error> {
        let found = page.found.iter().filter(|found| found.is_stored).map(StagedFinding::from);
        let closed = page.closed.iter().map(|(key, target)| closed(key, target));
        let page_row = PassPage {
            position: page.next.to_text(),
            counts: page.counts,
            findings: found.chain(closed).collect(),
            folders: page.folders,
            instance: self.instance,
        };
        self.catalog.store_pass_page(&pass, &page_row).await?;
        for key in &page.recovered {
            self.recover(backend, key, report).await?;
        }
        let PassPage { position, counts, .. } = page_row;
        Ok(ReconcilePass { position, counts, failures: 0, ..pass })
    }

    /// A pass is valid if its store is the expected one at the end, too.
    async fn close(
        &self,
        backend: &SharedBackend,
        pass: ReconcilePass,
        report: &mut Report,
    ) -> Result<NextStep, Error> {
        match self.identity.store_fault(backend).await {
            Ok(None) => {}
            Ok(Some(fault)) => return self.invalidate(&pass, &fault, report).await.map(|()| None),
            Err(error) => return self.note_failure(&pass, &error, report).await.map(|()| None),
        }
        let held = pass.counts.hold(self.settings.current().max_delete_fraction);
        self.catalog.close_pass(&pass, held.as_deref()).await?;
        Ok(Some(ReconcilePass { state: PassState::Folding, held, ..pass }))
    }

    async fn fold(&self, pass: ReconcilePass, report: &mut Report) -> Result<NextStep, Error> {
        if self.catalog.fold_pass(&pass).await? {
            return Ok(Some(pass));
        }
        let outcome = if pass.held.is_some() { "held" } else { "valid" };
        report.count(outcome, 1);
        report.events.push(completed(&pass, outcome, pass.held.as_deref()));
        if let Some(why) = &pass.held {
            tracing::warn!(backend = %pass.backend, reason = why, "reconcile pass held until it is approved");
        }
        Ok(Some(ReconcilePass { state: PassState::Acting, position: "0".to_owned(), ..pass }))
    }

    /// Ends a pass whose listing cannot be relied on. Its findings are dropped, and those before it stay.
    async fn invalidate(&self, pass: &ReconcilePass, fault: &PassFault, report: &mut Report) -> Result<(), Error> {
        let why = fault.to_string();
        if self.catalog.invalidate_pass(pass, &why).await? {
            tracing::warn!(backend = %pass.backend, reason = why, "reconcile pass is not valid");
            report.count("invalid", 1);
            report.events.push(completed(pass, "invalid", Some(&why)));
            while self.catalog.forget_staged().await? {}
        }
        Ok(())
    }

    async fn note_failure(&self, pass: &ReconcilePass, error: &Error, report: &mut Report) -> Result<(), Error> {
        let why = error.to_string();
        tracing::info!(backend = %pass.backend, error = why, "cannot continue reconcile pass, retrying");
        report.count("failed", 1);
        if pass.state == PassState::Open && pass.failures + 1 >= FAILURES_MAX {
            return self.invalidate(pass, &PassFault::Away(FAILURES_MAX, why), report).await;
        }
        Ok(self.catalog.note_pass_failure(pass, &why).await?)
    }
}

/// The audit event of a pass that ended.
fn completed(pass: &ReconcilePass, outcome: &str, reason: Option<&str>) -> Event {
    let found: serde_json::Map<_, _> =
        pass.counts.found.iter().map(|(kind, found)| (kind.to_string(), json!(found.total))).collect();
    Event::new("reconcile.completed")
        .with("backend", pass.backend.to_string())
        .with("pass", pass.id)
        .with("outcome", outcome)
        .with("reason", reason)
        .with("keys", pass.counts.keys)
        .with("bytes", pass.counts.bytes)
        .with("foreign_keys", pass.counts.foreign_keys)
        .with("found", found)
}

impl From<&Difference> for StagedFinding {
    fn from(found: &Difference) -> Self {
        let detail = match (found.kind, found.expected_bytes) {
            (FindingKind::WrongSize, Some(expected)) => json!({"expected_bytes": expected}),
            (FindingKind::Missing | FindingKind::WrongSize, _) if found.is_lost => json!({"lost": true}),
            _ => json!({}),
        };
        Self {
            kind: Some(found.kind),
            physical_key: found.physical_key.clone(),
            target: found.target.clone(),
            size_bytes: found.size_bytes,
            fingerprint: found.fingerprint.clone(),
            born_at: identifier_time(&found.physical_key),
            detail: detail.to_string(),
        }
    }
}

/// Closes the finding about bytes that an operator wrote off.
fn closed(key: &str, target: &Target) -> StagedFinding {
    StagedFinding {
        kind: None,
        physical_key: key.to_owned(),
        target: target.clone(),
        size_bytes: 0,
        fingerprint: String::new(),
        born_at: None,
        detail: String::new(),
    }
}
