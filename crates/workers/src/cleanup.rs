//! Deletes bytes that no row refers to any more.
//!
//! One lane per backend: what one backend does not answer keeps nobody else waiting. Every key is
//! settled by its own answer.

mod attempt;
mod lane;
mod pace;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use s3o_backend::SharedBackend;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Ages, Cleanups, Contents, Waiting};
use s3o_model::cleanup::{Cleanup as Row, Outcome, Retries};
use s3o_model::entropy::Entropy;
use s3o_model::ids::{ClaimToken, IdSource, InstanceId};
use s3o_model::names::BackendName;

use lane::Lane;
pub use pace::Pace;

use crate::budget::Budget;
use crate::clock_guard::ClockGuard;
use crate::identity::Identity;
use crate::{Error, Event, Report, Worker, stale_claims};

/// How long condemned content is remembered.
const CONDEMNED_KEPT: Duration = Duration::from_hours(1);
/// How long the answer of a finished Complete is remembered.
const ANSWER_KEPT: Duration = Duration::from_hours(24);
/// How many bounded steps of expansion one tick does.
const STEPS_MAX: usize = 16;
/// How many batches of one backend one tick does.
const BATCHES_MAX: usize = 16;

/// How cleanup works.
#[derive(Debug, Clone, Copy)]
pub struct CleanupSettings {
    /// How many rows one tick claims per backend.
    pub batch_size: usize,
    /// How many rows that need care are worked on side by side, and, up to four, how many batches.
    pub concurrency: usize,
    /// After how long a claim is free again.
    pub claim_grace_period: Duration,
    /// How long readers of joined content may go on after its deletion.
    pub reader_grace: Duration,
    /// How refused rows are tried again.
    pub retries: Retries,
}

/// Deletes bytes that no row refers to any more.
pub struct Cleanup {
    /// The queue.
    pub cleanups: Arc<dyn Cleanups>,
    /// What is to be expanded into the queue.
    pub contents: Arc<dyn Contents>,
    /// The backends.
    pub fleet: Arc<Fleet>,
    /// Whether the backends still are who they were.
    pub identity: Arc<Identity>,
    /// Where tokens come from.
    pub ids: IdSource,
    /// This process.
    pub instance: InstanceId,
    /// Spreads retries.
    pub entropy: Arc<dyn Entropy>,
    /// How it works.
    pub settings: CleanupSettings,
    /// Tells whether requests are under way.
    pub budget: Arc<Budget>,
    /// How many batches each backend has taken at once so far.
    pub pace: Pace,
    /// Says whether the clock is in doubt: graces wait then.
    pub clock_guard: Option<Arc<ClockGuard>>,
}

#[async_trait]
impl Worker for Cleanup {
    fn name(&self) -> &'static str {
        "cleanup"
    }

    fn is_patient(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let mut waiting = self.look().await?;
        if waiting.claims {
            let token = ClaimToken::new(self.ids.fresh());
            stale_claims::free(self.cleanups.as_ref(), self.settings.claim_grace_period, token, report).await?;
        }
        let mut more = waiting.contents && self.expand().await?;
        if waiting.claims || waiting.contents {
            waiting = self.look().await?;
        }
        // An empty lane costs a look at the catalog; a look at the backend may be a paid request.
        let busy = self.fleet.backends().filter(|backend| waiting.lanes.contains(backend.name()));
        let lanes: Vec<_> = busy.map(|backend| self.boxed_lane(backend)).collect();
        let mut failed = None;
        for (lane, outcome) in join_all(lanes).await {
            more |= lane.more;
            report.absorb(lane);
            failed = failed.or(outcome.err());
        }
        report.more = more;
        // What the other lanes did is done and noted; the run still tells what went wrong.
        failed.map_or(Ok(()), Err)
    }
}

impl Cleanup {
    /// What there is to do; most often nothing, and then this is all that a tick costs.
    async fn look(&self) -> Result<Waiting, Error> {
        let backends: Vec<BackendName> = self.fleet.backends().map(|backend| backend.name().clone()).collect();
        let ages = Ages {
            claims: self.settings.claim_grace_period,
            joined: self.settings.reader_grace,
            answers: ANSWER_KEPT,
            condemned: CONDEMNED_KEPT,
        };
        Ok(self.cleanups.waiting(&backends, &ages).await?)
    }

    /// Turns what was closed or condemned as a whole into rows of the queue; says whether a bound
    /// was met before everything was done. While the clock is in doubt, what waits for a grace goes on waiting.
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

fn note(report: &mut Report, cleanup: &Row, outcome: &Outcome) {
    let Outcome::DeadLetter { why } = outcome else { return report.count(outcome.as_str(), 1) };
    report.count_at(outcome.as_str(), &cleanup.backend);
    let (backend, physical_key) = (&cleanup.backend, &cleanup.physical_key);
    tracing::warn!(%backend, physical_key, error = why, "cleanup moved to the dead-letter queue");
    let event = Event::new("cleanup_queue.dead_lettered");
    let event = event.at(&cleanup.backend, &cleanup.physical_key, cleanup.size_bytes);
    let event = event.with("reason", cleanup.reason.as_str()).with("attempts", cleanup.attempts + 1);
    report.events.push(event.with("error", why.as_str()));
}

/// Rows contradict each other: what a cleanup was about to delete, another row needs.
fn note_named(report: &mut Report, cleanup: &Row) {
    tracing::error!(backend = %cleanup.backend, physical_key = cleanup.physical_key, "cleanup names bytes in use, not deleted");
    report.count_at("still_named", &cleanup.backend);
    let event = Event::new("cleanup_queue.still_named");
    let event = event.at(&cleanup.backend, &cleanup.physical_key, cleanup.size_bytes);
    report.events.push(event.with("reason", cleanup.reason.as_str()));
}
