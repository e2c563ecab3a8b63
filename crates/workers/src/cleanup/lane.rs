//! The lane of one backend: claims, attempts and settles batches, several concurrently.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{BoxFuture, join};
use s3o_backend::SharedBackend;
use s3o_catalog::{ClaimedCleanups, Settlement};
use s3o_model::circuit::CircuitState;
use s3o_model::claim::Claimant;
use s3o_model::cleanup::{Cleanup, Outcome, Reason, judge};
use s3o_model::ids::ClaimToken;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{CleanupWorker, attempt, report_settled, report_still_named};
use crate::{Error, Report};

/// The batches of one backend in one tick.
pub(super) struct Lane<'a> {
    cleanup: &'a CleanupWorker,
    backend: &'a SharedBackend,
    /// One permit for each concurrent batch at the backend.
    permits: Semaphore,
    /// Set when a batch settled none of its rows.
    stuck: AtomicBool,
}

struct ClaimedBatch<'a> {
    claimed: ClaimedCleanups,
    token: ClaimToken,
    permit: SemaphorePermit<'a>,
}

impl<'a> Lane<'a> {
    pub(super) fn new(cleanup: &'a CleanupWorker, backend: &'a SharedBackend) -> Self {
        let permits = Semaphore::new(cleanup.batch_concurrency.of(backend.name()));
        Self { cleanup, backend, permits, stuck: AtomicBool::new(false) }
    }

    /// Runs up to `left` batches. The next one is claimed while this one runs, as long as batches are full, rows leave
    /// the queue, and no request is in progress.
    pub(super) fn batches(&'a self, left: usize) -> BoxFuture<'a, (Report, Result<(), Error>)> {
        Box::pin(async move {
            let batch = match self.claim().await {
                Ok(Some(batch)) => batch,
                Ok(None) => return (Report::default(), Ok(())),
                Err(error) => return (Report::default(), Err(error)),
            };
            let full = batch.claimed.cleanups.len() + batch.claimed.named.len() >= self.cleanup.settings.batch_size;
            let next = async {
                if full && left > 1 && !self.cleanup.budget.has_requests() {
                    self.batches(left - 1).await
                } else {
                    (Report { more: full, ..Report::default() }, Ok(()))
                }
            };
            let mut report = Report::default();
            let (outcome, (later, later_outcome)) = join(self.execute(batch, &mut report), next).await;
            report.absorb(later);
            report.more &= !self.stuck.load(Ordering::Relaxed);
            (report, outcome.and(later_outcome))
        })
    }

    /// Claims a batch once a permit is free; `None` if the queue is empty or the backend takes no deletes now.
    async fn claim(&'a self) -> Result<Option<ClaimedBatch<'a>>, Error> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        if self.stuck.load(Ordering::Relaxed)
            || self.cleanup.fleet.worst_circuit(self.backend.name()) == CircuitState::Open
        {
            return Ok(None);
        }
        if !self.cleanup.identity.permits_deletes(self.backend).await? {
            return Ok(None);
        }
        let CleanupWorker { cleanups, settings, instance, ids, .. } = self.cleanup;
        let token = ClaimToken::new(ids.fresh());
        let claimant = Claimant { instance: *instance, token };
        let claimed = cleanups.claim_cleanups(self.backend.name(), settings.batch_size, &claimant).await?;
        let empty = claimed.cleanups.is_empty() && claimed.named.is_empty();
        Ok((!empty).then_some(ClaimedBatch { claimed, token, permit }))
    }

    async fn execute(&self, batch: ClaimedBatch<'_>, report: &mut Report) -> Result<(), Error> {
        let ClaimedBatch { claimed: ClaimedCleanups { cleanups: claimed, at, waited, named }, token, permit } = batch;
        report.waited = waited;
        for cleanup in &named {
            report_still_named(report, cleanup);
        }
        let settings = &self.cleanup.settings;
        let attempts = attempt::all(self.backend.as_ref(), &claimed, settings.concurrency).await;
        let mut settlements = Vec::with_capacity(claimed.len());
        let trusted = Some(at).filter(|_| !self.cleanup.is_clock_held());
        for (cleanup, attempt) in claimed.iter().zip(attempts) {
            // An absence is judged by the time of the claim, before the probe: a late write may finish
            // after a slow probe.
            let outcome = judge(cleanup, attempt, trusted, &settings.retries, self.cleanup.entropy.next_unit());
            settlements.push(Settlement { id: cleanup.id, outcome });
        }
        self.record_freed(&claimed, &settlements);
        self.adjust_concurrency(!named.is_empty() || settlements.iter().any(|settlement| settlement.outcome.leaves()));
        // The backend calls of this batch are done.
        drop(permit);
        let settled = self.cleanup.cleanups.settle_cleanups(token, &settlements).await?;
        report.count("stale", (settlements.len() - settled.len()) as u64);
        for (cleanup, settlement) in claimed.iter().zip(&settlements) {
            // A row whose claim was taken over is reported by its new owner.
            if settled.contains(&cleanup.id) {
                report_settled(report, cleanup, &settlement.outcome);
            }
        }
        Ok(())
    }

    /// Clears the "no space" state of a backend after a delete. Remains of failed writes do not count: their delete
    /// frees no space that the next write could use.
    fn record_freed(&self, claimed: &[Cleanup], settlements: &[Settlement]) {
        let freed = |(row, settlement): (&Cleanup, &Settlement)| {
            settlement.outcome == Outcome::Done && row.reason != Reason::PutOrphan.as_str()
        };
        if claimed.iter().zip(settlements).any(freed) {
            self.cleanup.fleet.record_freed(self.backend.name());
        }
    }

    /// Adds a concurrent batch after a batch that settled rows; falls back to one after a batch that settled none.
    fn adjust_concurrency(&self, progressed: bool) {
        let CleanupWorker { batch_concurrency, settings, .. } = self.cleanup;
        if !progressed {
            self.stuck.store(true, Ordering::Relaxed);
            batch_concurrency.reset(self.backend.name());
        } else if batch_concurrency.increase(self.backend.name(), settings.concurrency) {
            self.permits.add_permits(1);
        }
    }
}
