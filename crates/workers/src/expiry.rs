//! Deletes expired objects, and objects in trash whose retention has ended, so that their bytes are no longer billed.
//!
//! Reads ignore an object from its expiration on; this worker deletes its row and bytes. It claims rows
//! and deletes them by the token of the claim, so that an object written since then stays. Several
//! instances share a backlog.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use s3o_catalog::{Catalog, Error as CatalogError, ExpiredObject};
use s3o_model::ids::{ClaimToken, IdSource};
use tokio::sync::Notify;

use crate::trash::TrashEnds;
use crate::{Error, Event, Report, Worker};

/// With more failed rows than this in one tick, the cause is not in the rows: the others wait for the next run.
const FAILURES_MAX: u64 = 10;

/// Deletes the rows of expired objects in batches and queues their bytes.
pub struct ExpiryWorker {
    expiries: Arc<Catalog>,
    ids: IdSource,
    batch_size: usize,
    cleanup_wakeup: Arc<Notify>,
    claims: ExpiryClaims,
    trash_retention: Duration,
}

/// Claims that may still hold rows: after a tick that failed, or whose answer was lost, the next tick continues with
/// them. Clones share them, so that a replacing worker continues, too.
#[derive(Debug, Clone, Default)]
pub struct ExpiryClaims(Arc<Mutex<Vec<ClaimToken>>>);

#[async_trait]
impl Worker for ExpiryWorker {
    fn name(&self) -> &'static str {
        "expiry"
    }

    fn is_time_dependent(&self) -> bool {
        true
    }

    fn yields_to_requests(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let due = self.expiries.due_expiries().await?;
        report.more = match self.claims().is_empty() {
            true if due.objects => self.claim().await?,
            true => false,
            false => true,
        };
        while let Some(token) = self.latest_claim() {
            match self.expiries.remove_claimed(token).await {
                Ok(gone) => {
                    self.note(report, gone);
                    self.forget(token);
                }
                // One row that violates a constraint of the catalog must not block the others.
                Err(CatalogError::Internal(why)) => self.halve(token, &why, report).await?,
                Err(error) => return Err(error.into()),
            }
        }
        if due.trash {
            report.more |= self.end_trash(report).await?;
        }
        Ok(())
    }
}

impl ExpiryWorker {
    /// A worker that claims `batch_size` rows per tick and notifies `cleanup_wakeup` after deletions.
    pub fn new(expiries: Arc<Catalog>, ids: IdSource, batch_size: usize, cleanup_wakeup: Arc<Notify>) -> Self {
        let (claims, trash_retention) = (ExpiryClaims::default(), Duration::MAX);
        Self { expiries, ids, batch_size, cleanup_wakeup, claims, trash_retention }
    }

    /// Deletes objects from trash after this time, or later if a longer one applied when they were deleted. Without it
    /// they are kept.
    #[must_use]
    pub fn with_trash_retention(mut self, retention: Duration) -> Self {
        self.trash_retention = retention;
        self
    }

    /// Continues the claims of the worker that this one replaces.
    #[must_use]
    pub fn continuing(mut self, claims: &ExpiryClaims) -> Self {
        self.claims = claims.clone();
        self
    }

    async fn end_trash(&self, report: &mut Report) -> Result<bool, Error> {
        let (catalog, ids, batch_size) = (self.expiries.as_ref(), &self.ids, self.batch_size);
        let more = TrashEnds { catalog, ids, batch_size, retention: self.trash_retention }.run(report).await;
        if !report.items.is_empty() {
            self.cleanup_wakeup.notify_one();
        }
        more
    }

    fn claims(&self) -> MutexGuard<'_, Vec<ClaimToken>> {
        self.claims.0.lock()
    }

    fn latest_claim(&self) -> Option<ClaimToken> {
        self.claims().last().copied()
    }

    fn forget(&self, token: ClaimToken) {
        self.claims().retain(|claim| *claim != token);
    }

    /// Claims the next batch; true if more rows may be waiting.
    async fn claim(&self) -> Result<bool, Error> {
        let token = self.fresh();
        let claimed = self.expiries.claim_expiries(token, self.batch_size).await?;
        if claimed == 0 {
            self.forget(token);
        }
        Ok(claimed >= self.batch_size)
    }

    /// A new token, stored before the catalog sees it.
    fn fresh(&self) -> ClaimToken {
        let token = ClaimToken::new(self.ids.fresh());
        self.claims().push(token);
        token
    }

    /// Splits a claim that failed; a single row that cannot be deleted is recorded as a finding.
    async fn halve(&self, token: ClaimToken, why: &str, report: &mut Report) -> Result<(), Error> {
        let other = self.fresh();
        if self.expiries.halve_claim(token, other).await? > 0 {
            return Ok(());
        }
        tracing::error!(error = why, "expired object not deleted, see s3o findings list --kind not_expired");
        self.expiries.note_unremovable(token, why).await?;
        report.count("failed", 1);
        self.forget(token);
        self.forget(other);
        if report.items["failed"] > FAILURES_MAX {
            return Err(CatalogError::Internal(why.to_owned()).into());
        }
        Ok(())
    }

    fn note(&self, report: &mut Report, gone: Vec<ExpiredObject>) {
        if gone.is_empty() {
            return;
        }
        self.cleanup_wakeup.notify_one();
        report.count("deleted", gone.len() as u64);
        report.events.extend(gone.into_iter().map(|object| {
            let ExpiredObject { bucket, key, size_bytes } = object;
            Event::new("expiry.deleted").of(Some(bucket), &key).with("size_bytes", size_bytes)
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use s3o_catalog::conformance::fixture::Fixture;
    use s3o_catalog::params;
    use s3o_model::ids::BucketId;

    use super::ExpiryWorker;
    use crate::testing::{counted, event_names, fixture, ids};
    use crate::{Report, Worker as _};

    const MINUTE: Duration = Duration::from_mins(1);

    async fn expired(fixture: &Fixture, count: usize) -> BucketId {
        let bucket = fixture.bucket("mortal").await;
        for number in 0..count {
            fixture.put_expiring(bucket, &format!("k{number}"), 5, MINUTE).await;
        }
        fixture.clock.advance(MINUTE);
        bucket
    }

    fn worker(fixture: &Fixture, batch_size: usize) -> ExpiryWorker {
        ExpiryWorker::new(Arc::new(fixture.catalog.clone()), ids(fixture), batch_size, Arc::default())
    }

    async fn tick(worker: &ExpiryWorker) -> Report {
        let mut report = Report::default();
        worker.tick(&mut report).await.expect("a tick");
        report
    }

    #[tokio::test]
    async fn expired_objects_are_deleted_and_audited_in_bounded_batches() {
        let fixture = fixture();
        expired(&fixture, 3).await;
        let worker = worker(&fixture, 2);
        let report = tick(&worker).await;
        assert_eq!((counted(&report), report.more), (vec![("deleted", 2)], true));
        assert_eq!(event_names(&report), ["expiry.deleted", "expiry.deleted"]);
        let event = serde_json::to_value(&report.events[0]).expect("serialises");
        assert_eq!(event, serde_json::json!({"bucket": "mortal", "key": "k0", "size_bytes": 5}));
        tokio::time::timeout(Duration::ZERO, worker.cleanup_wakeup.notified()).await.expect("cleanup was woken");
        let report = tick(&worker).await;
        assert_eq!((counted(&report), report.more), (vec![("deleted", 1)], false));
        assert_eq!(tick(&worker).await, Report::default());
        assert_eq!(fixture.usage().await, (0, 15, 0));
    }

    #[tokio::test]
    async fn idle_tick_runs_no_unit_of_work() {
        let fixture = fixture();
        let bucket = expired(&fixture, 1).await;
        let worker = worker(&fixture, 9);
        tick(&worker).await;
        fixture.put_expiring(bucket, "alive", 1, MINUTE).await;
        let before = fixture.catalog.effort();
        assert_eq!(tick(&worker).await, Report::default());
        assert_eq!(fixture.catalog.effort().units, before.units);
    }

    #[tokio::test]
    async fn row_that_cannot_be_deleted_does_not_block_the_others() {
        let fixture = fixture();
        let bucket = expired(&fixture, 6).await;
        let bad = fixture.put_expiring(bucket, "k2", 5, MINUTE).await;
        fixture.clock.advance(MINUTE);
        fixture.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![bad]).await;
        let worker = worker(&fixture, 9);
        let report = tick(&worker).await;
        assert_eq!(counted(&report), [("deleted", 5), ("failed", 1)]);
        assert_eq!(tick(&worker).await, Report::default(), "the row is not retried");
        assert_eq!(fixture.number("SELECT count(*) FROM findings").await, 1);
    }

    #[tokio::test]
    async fn tick_fails_when_too_many_rows_fail() {
        let fixture = fixture();
        expired(&fixture, 40).await;
        fixture.change("UPDATE contents SET ref_count = 0", vec![]).await;
        let worker = worker(&fixture, 99);
        let mut report = Report::default();
        worker.tick(&mut report).await.expect_err("too many");
        assert_eq!(counted(&report), [("failed", super::FAILURES_MAX + 1)]);
        fixture.change("UPDATE contents SET ref_count = 1", vec![]).await;
        assert_eq!(counted(&tick(&worker).await), [("deleted", 29)], "the remaining rows are still claimed");
    }

    #[tokio::test]
    async fn replacing_worker_continues_claims() {
        let fixture = fixture();
        expired(&fixture, 2).await;
        let claims = super::ExpiryClaims::default();
        let replaced = worker(&fixture, 9).continuing(&claims);
        let token = replaced.fresh();
        fixture.catalog.claim_expiries(token, 9).await.expect("claimed");
        let replacing = worker(&fixture, 9).continuing(&claims);
        drop(replaced);
        assert_eq!(counted(&tick(&replacing).await), [("deleted", 2)]);
    }

    #[tokio::test]
    async fn next_tick_continues_the_claims_of_a_failed_one() {
        let fixture = fixture();
        expired(&fixture, 2).await;
        let worker = worker(&fixture, 9);
        let token = worker.fresh();
        let claimed = fixture.catalog.claim_expiries(token, 9).await.expect("claimed");
        let report = tick(&worker).await;
        assert_eq!((claimed, counted(&report)), (2, vec![("deleted", 2)]));
        assert!(worker.claims().is_empty());
    }
}
