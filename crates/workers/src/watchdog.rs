//! Releases what a crashed worker still holds: claims on cleanups, and objects whose deletion is stuck. Continues
//! operations on prefixes whose instance ended.
//!
//! Other workers claim the released rows. A worker that was only slow no longer finds rows under
//! its token.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_catalog::{Catalog, Longest};
use s3o_model::ids::{ClaimToken, IdSource};
use tokio::sync::Notify;

use crate::clock_guard::ClockGuard;
use crate::{Error, Event, Report, Worker, stale_claims, trash};

/// Number of objects that one tick resets.
const BATCH: usize = 1000;

/// Timeouts of the watchdog.
#[derive(Debug, Clone, Copy)]
pub struct WatchdogSettings {
    /// Age at which a claim is released.
    pub claim_grace_period: Duration,
    /// Age at which a started deletion is reset.
    pub stuck_after: Duration,
    /// How far in the future stored times may be; a wrong clock wrote those beyond.
    pub longest: Longest,
}

/// Releases stale claims and resets stuck deletions.
pub struct WatchdogWorker {
    /// The cleanup queue.
    pub cleanups: Arc<Catalog>,
    /// Objects with a started deletion.
    pub objects: Arc<Catalog>,
    /// Rows with times in the future.
    pub ahead: Arc<Catalog>,
    /// Source of claim tokens.
    pub ids: IdSource,
    /// Timeouts.
    pub settings: WatchdogSettings,
    /// Clock guard; while it does not trust the clock, future times are left alone.
    pub clock_guard: Option<Arc<ClockGuard>>,
    /// Wakes the cleanup worker after claims were released.
    pub cleanup_wakeup: Arc<Notify>,
}

#[async_trait]
impl Worker for WatchdogWorker {
    fn name(&self) -> &'static str {
        "watchdog"
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        self.end_future(report).await?;
        let token = ClaimToken::new(self.ids.fresh());
        stale_claims::release(self.cleanups.as_ref(), self.settings.claim_grace_period, token, report).await?;
        trash::continue_operation(&self.objects, &self.ids, report).await?;
        if !report.items.is_empty() {
            self.cleanup_wakeup.notify_one();
        }
        self.reset_stuck(report).await
    }
}

impl WatchdogWorker {
    async fn end_future(&self, report: &mut Report) -> Result<(), Error> {
        if self.clock_guard.as_ref().is_some_and(|guard| guard.held().is_some()) {
            return Ok(());
        }
        let ended = self.ahead.end_future(&self.settings.longest).await?;
        if ended > 0 {
            tracing::warn!(rows = ended, "rows with times too far in the future made due, a clock was ahead");
            report.count("ahead", ended as u64);
            report.more |= ended >= BATCH;
        }
        Ok(())
    }

    async fn reset_stuck(&self, report: &mut Report) -> Result<(), Error> {
        let reset = self.objects.reset_stuck(self.settings.stuck_after, BATCH).await?;
        report.more |= reset.len() >= BATCH;
        report.count("stuck_reset", reset.len() as u64);
        for object in reset {
            report.events.push(Event::new("expiry.stuck_reset").of(Some(object.bucket), &object.key));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use s3o_catalog::params;
    use s3o_catalog::{Late, Longest};

    use super::{WatchdogSettings, WatchdogWorker};
    use crate::testing::{counted, event_names, fixture, ids};
    use crate::{Report, Worker as _};

    const GRACE: Duration = Duration::from_mins(5);
    const STUCK: Duration = Duration::from_hours(2);
    const LONGEST: Longest = Longest {
        due: Duration::from_hours(24),
        claim: GRACE,
        lease: GRACE,
        deletion: STUCK,
        absence: Duration::from_hours(1),
        past: GRACE,
        record: GRACE,
    };

    #[tokio::test]
    async fn stale_claims_are_released_and_stuck_deletions_reset() {
        let fixture = fixture();
        let bucket = fixture.bucket("left").await;
        fixture.put(bucket, "stuck", 1).await;
        let dropped = fixture.staged(bucket, "queued", 7).await;
        fixture.catalog.drop_write(dropped.write, Late::No).await.expect("dropped");
        fixture.claim(9).await;
        let begin =
            "UPDATE objects SET deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now, token = $1";
        fixture.change(begin, params![fixture.token()]).await;
        let catalog = Arc::new(fixture.catalog.clone());
        let watchdog = WatchdogWorker {
            cleanups: catalog.clone(),
            objects: catalog.clone(),
            ahead: catalog,
            ids: ids(&fixture),
            settings: WatchdogSettings { claim_grace_period: GRACE, stuck_after: STUCK, longest: LONGEST },
            clock_guard: None,
            cleanup_wakeup: Arc::default(),
        };
        let mut report = Report::default();
        watchdog.tick(&mut report).await.expect("a tick");
        assert_eq!(report, Report::default(), "the grace periods have not passed");
        fixture.clock.advance(GRACE);
        watchdog.tick(&mut report).await.expect("a tick");
        assert_eq!(counted(&report), [("recovered", 1)]);
        assert_eq!(report.by_backend.len(), 1);
        fixture.clock.advance(STUCK);
        watchdog.tick(&mut report).await.expect("a tick");
        assert_eq!(counted(&report), [("recovered", 1), ("stuck_reset", 1)]);
        assert_eq!(event_names(&report), ["cleanup_queue.claim_recovered", "expiry.stuck_reset"]);
        let (bucket, key) = (report.events[1].bucket.as_deref(), report.events[1].key.as_deref());
        assert_eq!((bucket, key), (Some("left"), Some("stuck")));
        assert_eq!(fixture.claim(9).await.1.len(), 1);
    }
}
