//! The lane of one backend: batches that are claimed, attempted and settled, several at once.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{BoxFuture, join};
use s3o_backend::SharedBackend;
use s3o_catalog::{ClaimedCleanups, Settlement};
use s3o_model::claim::Claimant;
use s3o_model::cleanup::{Cleanup as Row, Outcome, Reason, judge};
use s3o_model::ids::ClaimToken;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Cleanup, attempt, note, note_named};
use crate::{Error, Report};

/// One backend during one tick.
pub(super) struct Lane<'a> {
    cleanup: &'a Cleanup,
    backend: &'a SharedBackend,
    /// One for each batch that may be under way at the backend.
    hands: Semaphore,
    /// Whether a batch did not get a single row out of the queue.
    stuck: AtomicBool,
}

/// A batch that is this process's to work on.
struct Batch<'a> {
    claimed: ClaimedCleanups,
    token: ClaimToken,
    hand: SemaphorePermit<'a>,
}

impl<'a> Lane<'a> {
    pub(super) fn new(cleanup: &'a Cleanup, backend: &'a SharedBackend) -> Self {
        let hands = Semaphore::new(cleanup.pace.hands(backend.name()));
        Self { cleanup, backend, hands, stuck: AtomicBool::new(false) }
    }

    /// So many batches at most. The next is claimed while this one is under way, as long as batches are full, rows leave
    /// the queue, and nobody asks anything of this process.
    pub(super) fn batches(&'a self, left: usize) -> BoxFuture<'a, (Report, Result<(), Error>)> {
        Box::pin(async move {
            let batch = match self.claim().await {
                Ok(Some(batch)) => batch,
                Ok(None) => return (Report::default(), Ok(())),
                Err(error) => return (Report::default(), Err(error)),
            };
            let full = batch.claimed.cleanups.len() + batch.claimed.named.len() >= self.cleanup.settings.batch_size;
            let next = async {
                if full && left > 1 && !self.cleanup.budget.is_asked() {
                    self.batches(left - 1).await
                } else {
                    (Report { more: full, ..Report::default() }, Ok(()))
                }
            };
            let mut report = Report::default();
            let (outcome, (later, later_outcome)) = join(self.work_off(batch, &mut report), next).await;
            report.absorb(later);
            report.more &= !self.stuck.load(Ordering::Relaxed);
            (report, outcome.and(later_outcome))
        })
    }

    /// Claims a batch once there is a hand for it; none if there is nothing to do, or nothing to be done.
    async fn claim(&'a self) -> Result<Option<Batch<'a>>, Error> {
        let hand = self.hands.acquire().await.expect("the semaphore is never closed");
        if self.stuck.load(Ordering::Relaxed) || !self.cleanup.identity.permits_deletes(self.backend).await? {
            return Ok(None);
        }
        let Cleanup { cleanups, settings, instance, ids, .. } = self.cleanup;
        let token = ClaimToken::new(ids.fresh());
        let claimant = Claimant { instance: *instance, token };
        let claimed = cleanups.claim_cleanups(self.backend.name(), settings.batch_size, &claimant).await?;
        let empty = claimed.cleanups.is_empty() && claimed.named.is_empty();
        Ok((!empty).then_some(Batch { claimed, token, hand }))
    }

    async fn work_off(&self, batch: Batch<'_>, report: &mut Report) -> Result<(), Error> {
        let Batch { claimed: ClaimedCleanups { cleanups: claimed, at, waited, named }, token, hand } = batch;
        report.waited = waited;
        for cleanup in &named {
            note_named(report, cleanup);
        }
        let settings = &self.cleanup.settings;
        let attempts = attempt::all(self.backend.as_ref(), &claimed, settings.concurrency).await;
        let mut settlements = Vec::with_capacity(claimed.len());
        let trusted = Some(at).filter(|_| !self.cleanup.is_clock_held());
        for (cleanup, attempt) in claimed.iter().zip(attempts) {
            // What was absent is judged by the moment before anybody looked: a late write may have landed
            // behind a look that took long.
            let outcome = judge(cleanup, attempt, trusted, &settings.retries, self.cleanup.entropy.next_unit());
            settlements.push(Settlement { id: cleanup.id, outcome });
        }
        self.record_freed(&claimed, &settlements);
        self.learn(!named.is_empty() || settlements.iter().any(|settlement| settlement.outcome.leaves()));
        // The backend has nothing more to do for this batch.
        drop(hand);
        let settled = self.cleanup.cleanups.settle_cleanups(token, &settlements).await?;
        report.count("stale", (settlements.len() - settled.len()) as u64);
        for (cleanup, settlement) in claimed.iter().zip(&settlements) {
            // Whoever took the claim over tells what became of the row.
            if settled.contains(&cleanup.id) {
                note(report, cleanup, &settlement.outcome);
            }
        }
        Ok(())
    }

    /// A delete may have made space on a backend that reported none. The remains of writes that failed do not count:
    /// their delete frees nothing that the next write could use.
    fn record_freed(&self, claimed: &[Row], settlements: &[Settlement]) {
        let freed = |(row, settlement): (&Row, &Settlement)| {
            settlement.outcome == Outcome::Done && row.reason != Reason::PutOrphan.as_str()
        };
        if claimed.iter().zip(settlements).any(freed) {
            self.cleanup.fleet.record_freed(self.backend.name());
        }
    }

    /// Whether a batch got rows out of the queue tells how many the backend is given at once.
    fn learn(&self, went_well: bool) {
        let Cleanup { pace, settings, .. } = self.cleanup;
        if !went_well {
            self.stuck.store(true, Ordering::Relaxed);
            pace.got_stuck(self.backend.name());
        } else if pace.went_well(self.backend.name(), settings.concurrency) {
            self.hands.add_permits(1);
        }
    }
}
