//! Removes objects whose time has passed, so that their bytes do not stay on the bill.
//!
//! Nobody sees them any more from that very moment; this is about their rows and bytes. Rows are
//! claimed, and removed by the token of the claim: what was written anew in between stays. Several
//! workers share a backlog.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use s3o_catalog::{Error as CatalogError, ExpiredObject, Expiries};
use s3o_model::ids::{ClaimToken, IdSource};
use tokio::sync::Notify;

use crate::{Error, Event, Report, Worker};

/// If more rows than that break a rule in one tick, it is not the rows: the others wait for the next run.
const FAILURES_MAX: u64 = 10;

/// Removes objects whose time has passed.
pub struct Expiry {
    expiries: Arc<dyn Expiries>,
    ids: IdSource,
    batch_size: usize,
    cleanup_bell: Arc<Notify>,
    claims: ExpiryClaims,
}

/// Claims that may still hold rows: the tick after one that failed, or whose answer was lost, goes on with them. Clones share
/// them, so that a worker that replaces another one does, too.
#[derive(Debug, Clone, Default)]
pub struct ExpiryClaims(Arc<Mutex<Vec<ClaimToken>>>);

#[async_trait]
impl Worker for Expiry {
    fn name(&self) -> &'static str {
        "expiry"
    }

    fn is_decided_by_time(&self) -> bool {
        true
    }

    fn is_patient(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        report.more = if self.claims().is_empty() { self.claim().await? } else { true };
        while let Some(token) = self.latest() {
            match self.expiries.remove_claimed(token).await {
                Ok(gone) => {
                    self.note(report, gone);
                    self.forget(token);
                }
                // A row that breaks a rule of the catalog takes no other with it.
                Err(CatalogError::Internal(why)) => self.halve(token, &why, report).await?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Expiry {
    /// A worker that claims so many at a time; the bell is rung when bytes are to be deleted.
    pub fn new(expiries: Arc<dyn Expiries>, ids: IdSource, batch_size: usize, cleanup_bell: Arc<Notify>) -> Self {
        Self { expiries, ids, batch_size, cleanup_bell, claims: ExpiryClaims::default() }
    }

    /// Goes on with the claims of the worker that this one replaces.
    #[must_use]
    pub fn continuing(mut self, claims: &ExpiryClaims) -> Self {
        self.claims = claims.clone();
        self
    }

    fn claims(&self) -> MutexGuard<'_, Vec<ClaimToken>> {
        self.claims.0.lock()
    }

    fn latest(&self) -> Option<ClaimToken> {
        self.claims().last().copied()
    }

    fn forget(&self, token: ClaimToken) {
        self.claims().retain(|claim| *claim != token);
    }

    /// Claims the next batch; says whether more may be waiting behind it.
    async fn claim(&self) -> Result<bool, Error> {
        let token = self.fresh();
        let claimed = self.expiries.claim_expiries(token, self.batch_size).await?;
        if claimed == 0 {
            self.forget(token);
        }
        Ok(claimed >= self.batch_size)
    }

    /// A token that is remembered before anybody is asked to work under it.
    fn fresh(&self) -> ClaimToken {
        let token = ClaimToken::new(self.ids.fresh());
        self.claims().push(token);
        token
    }

    async fn halve(&self, token: ClaimToken, why: &str, report: &mut Report) -> Result<(), Error> {
        let other = self.fresh();
        if self.expiries.halve_claim(token, other).await? > 0 {
            return Ok(());
        }
        tracing::error!(why, "an expired object cannot be removed, a finding tells which");
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
        self.cleanup_bell.notify_one();
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

    use s3o_catalog::conformance::scene::Scene;
    use s3o_catalog::params;
    use s3o_model::ids::BucketId;

    use super::Expiry;
    use crate::testing::{counted, ids, scene, told};
    use crate::{Report, Worker as _};

    const MINUTE: Duration = Duration::from_mins(1);

    async fn expired(scene: &Scene, count: usize) -> BucketId {
        let bucket = scene.bucket("mortal").await;
        for number in 0..count {
            scene.mortal(bucket, &format!("k{number}"), 5, MINUTE).await;
        }
        scene.clock.advance(MINUTE);
        bucket
    }

    fn worker(scene: &Scene, batch_size: usize) -> Expiry {
        Expiry::new(Arc::new(scene.catalog.clone()), ids(scene), batch_size, Arc::default())
    }

    async fn tick(worker: &Expiry) -> Report {
        let mut report = Report::default();
        worker.tick(&mut report).await.expect("a tick");
        report
    }

    #[tokio::test]
    async fn what_expired_goes_in_bounded_batches() {
        let scene = scene();
        expired(&scene, 3).await;
        let worker = worker(&scene, 2);
        let report = tick(&worker).await;
        assert_eq!((counted(&report), report.more), (vec![("deleted", 2)], true));
        assert_eq!(told(&report), ["expiry.deleted", "expiry.deleted"]);
        let event = serde_json::to_value(&report.events[0]).expect("serialises");
        assert_eq!(event, serde_json::json!({"bucket": "mortal", "key": "k0", "size_bytes": 5}));
        tokio::time::timeout(Duration::ZERO, worker.cleanup_bell.notified()).await.expect("cleanup was woken");
        let report = tick(&worker).await;
        assert_eq!((counted(&report), report.more), (vec![("deleted", 1)], false));
        assert_eq!(tick(&worker).await, Report::default());
        assert_eq!(scene.booked().await, (0, 15, 0));
    }

    #[tokio::test]
    async fn an_idle_tick_is_one_statement() {
        let scene = scene();
        let bucket = expired(&scene, 1).await;
        let worker = worker(&scene, 9);
        tick(&worker).await;
        scene.mortal(bucket, "alive", 1, MINUTE).await;
        let before = scene.catalog.effort();
        assert_eq!(tick(&worker).await, Report::default());
        assert_eq!(scene.catalog.effort().units, before.units);
    }

    #[tokio::test]
    async fn a_bad_row_is_set_aside_and_the_others_go() {
        let scene = scene();
        let bucket = expired(&scene, 6).await;
        let bad = scene.mortal(bucket, "k2", 5, MINUTE).await;
        scene.clock.advance(MINUTE);
        scene.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![bad]).await;
        let worker = worker(&scene, 9);
        let report = tick(&worker).await;
        assert_eq!(counted(&report), [("deleted", 5), ("failed", 1)]);
        assert_eq!(tick(&worker).await, Report::default(), "it is left alone");
        assert_eq!(scene.number("SELECT count(*) FROM findings").await, 1);
    }

    #[tokio::test]
    async fn what_fails_for_all_is_no_fault_of_the_rows() {
        let scene = scene();
        expired(&scene, 40).await;
        scene.change("UPDATE contents SET ref_count = 0", vec![]).await;
        let worker = worker(&scene, 99);
        let mut report = Report::default();
        worker.tick(&mut report).await.expect_err("too many");
        assert_eq!(counted(&report), [("failed", super::FAILURES_MAX + 1)]);
        scene.change("UPDATE contents SET ref_count = 1", vec![]).await;
        assert_eq!(counted(&tick(&worker).await), [("deleted", 29)], "the others are still its own");
    }

    #[tokio::test]
    async fn a_replacing_worker_continues_claims() {
        let scene = scene();
        expired(&scene, 2).await;
        let claims = super::ExpiryClaims::default();
        let replaced = worker(&scene, 9).continuing(&claims);
        let token = replaced.fresh();
        s3o_catalog::Expiries::claim_expiries(&scene.catalog, token, 9).await.expect("claimed");
        let replacing = worker(&scene, 9).continuing(&claims);
        drop(replaced);
        assert_eq!(counted(&tick(&replacing).await), [("deleted", 2)]);
    }

    #[tokio::test]
    async fn a_tick_that_failed_is_gone_on_with() {
        let scene = scene();
        expired(&scene, 2).await;
        let worker = worker(&scene, 9);
        let token = worker.fresh();
        let claimed = s3o_catalog::Expiries::claim_expiries(&scene.catalog, token, 9).await.expect("claimed");
        let report = tick(&worker).await;
        assert_eq!((claimed, counted(&report)), (2, vec![("deleted", 2)]));
        assert!(worker.claims().is_empty());
    }
}
