//! Frees what a dead worker left behind: claims of cleanups, and objects whose deletion does not end.
//!
//! Freed rows are worked on again by whoever does so; a worker that was only slow finds nothing
//! under its token.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_catalog::{Ahead, Cleanups, Longest, StuckObjects};
use s3o_model::ids::{ClaimToken, IdSource};
use tokio::sync::Notify;

use crate::clock_guard::ClockGuard;
use crate::{Error, Event, Report, Worker, stale_claims};

/// How many objects one tick resets.
const BATCH: usize = 1000;

/// What the watchdog takes for dead.
#[derive(Debug, Clone, Copy)]
pub struct WatchdogSettings {
    /// After how long a claim is free again.
    pub claim_grace_period: Duration,
    /// After how long a deletion is begun again.
    pub stuck_after: Duration,
    /// How far ahead moments can lie; what lies further ahead was written by a clock that was wrong.
    pub longest: Longest,
}

/// Frees what a dead worker left behind.
pub struct Watchdog {
    /// The queue.
    pub cleanups: Arc<dyn Cleanups>,
    /// The objects.
    pub objects: Arc<dyn StuckObjects>,
    /// Moments that lie ahead.
    pub ahead: Arc<dyn Ahead>,
    /// Where tokens come from.
    pub ids: IdSource,
    /// What it takes for dead.
    pub settings: WatchdogSettings,
    /// Says whether the clock is trusted; one that is not decides which moments lie ahead.
    pub clock_guard: Option<Arc<ClockGuard>>,
    /// Rung when claims were freed.
    pub cleanup_bell: Arc<Notify>,
}

#[async_trait]
impl Worker for Watchdog {
    fn name(&self) -> &'static str {
        "watchdog"
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        self.end_future(report).await?;
        let token = ClaimToken::new(self.ids.fresh());
        stale_claims::free(self.cleanups.as_ref(), self.settings.claim_grace_period, token, report).await?;
        if !report.items.is_empty() {
            self.cleanup_bell.notify_one();
        }
        self.reset_stuck(report).await
    }
}

impl Watchdog {
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

    use s3o_catalog::{Intents as _, params};
    use s3o_catalog::{Late, Longest};

    use super::{Watchdog, WatchdogSettings};
    use crate::testing::{counted, ids, scene, told};
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
    async fn what_a_dead_worker_left_is_free_again() {
        let scene = scene();
        let bucket = scene.bucket("left").await;
        scene.put(bucket, "stuck", 1).await;
        let dropped = scene.staged(bucket, "queued", 7).await;
        scene.catalog.drop_write(dropped.write, Late::No).await.expect("dropped");
        scene.claim(9).await;
        let begin =
            "UPDATE objects SET deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now, token = $1";
        scene.change(begin, params![scene.token()]).await;
        let catalog = Arc::new(scene.catalog.clone());
        let watchdog = Watchdog {
            cleanups: catalog.clone(),
            objects: catalog.clone(),
            ahead: catalog,
            ids: ids(&scene),
            settings: WatchdogSettings { claim_grace_period: GRACE, stuck_after: STUCK, longest: LONGEST },
            clock_guard: None,
            cleanup_bell: Arc::default(),
        };
        let mut report = Report::default();
        watchdog.tick(&mut report).await.expect("a tick");
        assert_eq!(report, Report::default(), "they may be alive");
        scene.clock.advance(GRACE);
        watchdog.tick(&mut report).await.expect("a tick");
        assert_eq!(counted(&report), [("recovered", 1)]);
        assert_eq!(report.by_backend.len(), 1);
        scene.clock.advance(STUCK);
        watchdog.tick(&mut report).await.expect("a tick");
        assert_eq!(counted(&report), [("recovered", 1), ("stuck_reset", 1)]);
        assert_eq!(told(&report), ["cleanup_queue.claim_recovered", "expiry.stuck_reset"]);
        let (bucket, key) = (report.events[1].bucket.as_deref(), report.events[1].key.as_deref());
        assert_eq!((bucket, key), (Some("left"), Some("stuck")));
        assert_eq!(scene.claim(9).await.1.len(), 1);
    }
}
