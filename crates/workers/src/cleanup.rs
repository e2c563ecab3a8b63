//! Deletes bytes that no row refers to.
//!
//! Each backend has its own lane, so that a backend that does not answer delays no other one. Each row is settled by
//! the backend's answer for its key.

mod attempt;
mod concurrency;
mod lane;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Ages, Catalog, Waiting};
use s3o_model::cleanup::{Cleanup, Outcome, Retries};
use s3o_model::entropy::Entropy;
use s3o_model::ids::{ClaimToken, IdSource, InstanceId};
use s3o_model::names::BackendName;

pub use concurrency::BatchConcurrency;
use lane::Lane;

use crate::budget::Budget;
use crate::clock_guard::ClockGuard;
use crate::identity::IdentityWorker;
use crate::{Error, Event, Report, Worker, stale_claims};

/// How long the catalog keeps the rows of condemned content.
const CONDEMNED_KEPT: Duration = Duration::from_hours(1);
/// How long the catalog keeps the answer of a finished Complete.
const ANSWER_KEPT: Duration = Duration::from_hours(24);
/// Number of expansion steps in one tick.
const STEPS_MAX: usize = 16;
/// Number of batches per backend in one tick.
const BATCHES_MAX: usize = 16;

/// Settings of the cleanup worker.
#[derive(Debug, Clone, Copy)]
pub struct CleanupSettings {
    /// Number of rows in one batch.
    pub batch_size: usize,
    /// Number of rows that are probed concurrently within a batch, and, up to four, of concurrent batches.
    pub concurrency: usize,
    /// Age at which the claim of another worker is released.
    pub claim_grace_period: Duration,
    /// How long joined content stays readable after its deletion, for reads in progress.
    pub reader_grace: Duration,
    /// When and how often refused deletes are retried.
    pub retries: Retries,
}

/// Deletes queued bytes from all backends; instances share the queue by claims.
pub struct CleanupWorker {
    /// The cleanup queue.
    pub cleanups: Arc<Catalog>,
    /// Closed uploads and condemned joined contents, which are expanded into the queue.
    pub contents: Arc<Catalog>,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// Checks the identity of a backend before deletes.
    pub identity: Arc<IdentityWorker>,
    /// Source of claim tokens.
    pub ids: IdSource,
    /// Identifier of this process in claims.
    pub instance: InstanceId,
    /// Source of jitter for retries.
    pub entropy: Arc<dyn Entropy>,
    /// Settings, replaced on reload together with the worker.
    pub settings: CleanupSettings,
    /// Shows whether requests are in progress.
    pub budget: Arc<Budget>,
    /// Current number of concurrent batches per backend.
    pub batch_concurrency: BatchConcurrency,
    /// Clock guard; grace periods do not end while the clock is not trusted.
    pub clock_guard: Option<Arc<ClockGuard>>,
}

#[async_trait]
impl Worker for CleanupWorker {
    fn name(&self) -> &'static str {
        "cleanup"
    }

    fn yields_to_requests(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let mut waiting = self.waiting().await?;
        if waiting.claims {
            let token = ClaimToken::new(self.ids.fresh());
            stale_claims::release(self.cleanups.as_ref(), self.settings.claim_grace_period, token, report).await?;
        }
        let mut more = waiting.contents && self.expand().await?;
        if waiting.claims || waiting.contents {
            waiting = self.waiting().await?;
        }
        // Backends without queued rows are skipped: the identity check of a lane may be a paid request.
        let busy = self.fleet.backends().filter(|backend| waiting.lanes.contains(backend.name()));
        let lanes: Vec<_> = busy.map(|backend| self.boxed_lane(backend)).collect();
        let mut failed = None;
        for (lane, outcome) in join_all(lanes).await {
            more |= lane.more;
            report.absorb(lane);
            failed = failed.or(outcome.err());
        }
        report.more = more;
        // The report already holds what the other lanes did; the run still fails.
        failed.map_or(Ok(()), Err)
    }
}

impl CleanupWorker {
    /// Which work is waiting; an idle tick costs only this query.
    async fn waiting(&self) -> Result<Waiting, Error> {
        let backends: Vec<BackendName> = self.fleet.backends().map(|backend| backend.name().clone()).collect();
        let ages = Ages {
            claims: self.settings.claim_grace_period,
            joined: self.settings.reader_grace,
            answers: ANSWER_KEPT,
            condemned: CONDEMNED_KEPT,
        };
        Ok(self.cleanups.waiting(&backends, &ages).await?)
    }

    /// Expands closed uploads and condemned joined contents into rows of the queue; true if the step
    /// limit was reached first. While the clock is not trusted, no grace period ends.
    async fn expand(&self) -> Result<bool, Error> {
        let mut steps = 0;
        while steps < STEPS_MAX && self.contents.expand_closed_upload().await? {
            steps += 1;
        }
        if self.is_clock_held() {
            return Ok(steps == STEPS_MAX);
        }
        while steps < STEPS_MAX && self.contents.expand_joined(self.settings.reader_grace).await? {
            steps += 1;
        }
        self.contents.forget_closed_uploads(ANSWER_KEPT).await?;
        self.contents.forget_condemned(CONDEMNED_KEPT).await?;
        Ok(steps == STEPS_MAX)
    }

    fn is_clock_held(&self) -> bool {
        self.clock_guard.as_ref().is_some_and(|guard| guard.held().is_some())
    }

    fn boxed_lane<'a>(&'a self, backend: &'a SharedBackend) -> BoxFuture<'a, (Report, Result<(), Error>)> {
        Box::pin(async move { Lane::new(self, backend).batches(BATCHES_MAX).await })
    }
}

fn report_settled(report: &mut Report, cleanup: &Cleanup, outcome: &Outcome) {
    let Outcome::DeadLetter { why } = outcome else { return report.count(outcome.as_str(), 1) };
    report.count_at(outcome.as_str(), &cleanup.backend);
    let (backend, physical_key) = (&cleanup.backend, &cleanup.physical_key);
    tracing::warn!(%backend, physical_key, error = why, "cleanup moved to the dead-letter queue, see s3o dlq list");
    let event = Event::new("cleanup_queue.dead_lettered");
    let event = event.at(&cleanup.backend, &cleanup.physical_key, cleanup.size_bytes);
    let event = event.with("reason", cleanup.reason.as_str()).with("attempts", cleanup.attempts + 1);
    report.events.push(event.with("error", why.as_str()));
}

/// Reports a contradiction in the catalog: another row still refers to the bytes of a cleanup.
fn report_still_named(report: &mut Report, cleanup: &Cleanup) {
    let (backend, physical_key) = (&cleanup.backend, &cleanup.physical_key);
    tracing::error!(%backend, physical_key, "cleanup not executed, another row refers to its bytes, run s3o verify");
    report.count_at("still_named", &cleanup.backend);
    let event = Event::new("cleanup_queue.still_named");
    let event = event.at(&cleanup.backend, &cleanup.physical_key, cleanup.size_bytes);
    report.events.push(event.with("reason", cleanup.reason.as_str()));
}
