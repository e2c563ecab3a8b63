//! Writes the copies that contents lack, those with the fewest copies first.
//!
//! The work is a queue in the catalog. Its rows are written by units that leave a content with too few copies, and by
//! the review that follows a change of a factor or of a backend's state.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Catalog, CopyWork, ReplicaSource};
use s3o_engine::{CopyObstacle, CopyOutcome, Engine};
use s3o_model::backoff::Backoff;
use s3o_model::content::Location;
use tokio::sync::Notify;

use crate::{CopyPace, Error, Event, Report, Worker};

/// Number of pieces of joined content, or contents of a review, in one step.
const STEP: usize = 1000;
/// The review waits while this many contents wait for copies.
const AHEAD_MAX: u64 = 10_000;
/// Number of contents out of reach after which a tick ends.
const SKIPPED_MAX: usize = 10_000;
/// Delay of a content after a failed attempt.
const RETRY: Backoff = Backoff { min: Duration::from_secs(5), max: Duration::from_hours(1) };

/// Bounds of the workers that write and remove copies; a reload replaces them.
#[derive(Debug, Clone, Copy)]
pub struct CopySettings {
    /// Number of contents in one tick.
    pub batch_size: usize,
    /// Number of copies that are written at a time.
    pub concurrency: usize,
    /// How long the bytes of a removed copy stay for its readers.
    pub reader_grace: Duration,
}

/// Brings every content to its factor.
pub struct ReplicatorWorker {
    /// The queue of work.
    pub catalog: Arc<Catalog>,
    /// Writes the copies.
    pub engine: Engine,
    /// The worker waits until each backend was probed once.
    pub fleet: Arc<Fleet>,
    /// Bounds, replaced on reload together with the worker.
    pub settings: CopySettings,
    /// Leaves the stores to requests.
    pub pace: CopyPace,
    /// Wakes the cleanup worker.
    pub cleanup_wakeup: Arc<Notify>,
}

/// Result of the work on one content.
enum Replicated {
    /// The content has as many copies as it needs, or is gone.
    Settled,
    /// Pieces of joined content were noted as work.
    Expanded,
    Copied(Location),
    /// This instance cannot reach a copy or a target; another instance may.
    Unreachable,
    Postponed(&'static str, String),
}

/// Result of one page of work.
#[derive(Default)]
struct PageResult {
    unreachable: usize,
    /// True if the work of a content was done.
    progressed: bool,
}

impl Replicated {
    fn no_target() -> Self {
        Self::Postponed("no_target", "no backend can take another copy".to_owned())
    }
}

#[async_trait]
impl Worker for ReplicatorWorker {
    fn name(&self) -> &'static str {
        "replicator"
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        // At a start no backend is usable yet: every attempt would fail.
        if !self.fleet.is_probed() {
            return Ok(());
        }
        let (mut skipped, mut more) = (0, false);
        // Contents that this instance cannot reach must not keep it from the others behind them.
        let is_reviewing = loop {
            let (due, is_reviewing) =
                self.catalog.due_copy_work_after(false, self.settings.batch_size, skipped).await?;
            let is_full = due.len() >= self.settings.batch_size;
            let page = self.work_on(due, report).await?;
            skipped += page.unreachable;
            more |= is_full && page.progressed;
            if !is_full || page.unreachable == 0 || page.progressed || skipped >= SKIPPED_MAX {
                break is_reviewing;
            }
        };
        if skipped > 0 {
            report.yields = Some("this instance cannot reach the copies or the backends that could take them");
        }
        if !report.items.is_empty() {
            self.cleanup_wakeup.notify_one();
        }
        let reviewed = is_reviewing && self.catalog.review_copies(STEP, AHEAD_MAX).await?;
        report.more = more || reviewed;
        Ok(())
    }
}

impl ReplicatorWorker {
    async fn work_on(&self, due: Vec<CopyWork>, report: &mut Report) -> Result<PageResult, Error> {
        let work: Vec<_> = due.into_iter().map(|work| self.boxed_work(work)).collect();
        let mut done = futures_util::stream::iter(work).buffer_unordered(self.settings.concurrency.max(1));
        let mut page = PageResult::default();
        while let Some((work, result)) = done.next().await {
            match result? {
                Replicated::Unreachable => page.unreachable += 1,
                result => page.progressed |= self.record(&work, result, report).await?,
            }
        }
        Ok(page)
    }

    fn boxed_work(&self, work: CopyWork) -> BoxFuture<'_, (CopyWork, Result<Replicated, Error>)> {
        Box::pin(async move {
            let result = self.pace.write(self.replicate(&work)).await;
            (work, result)
        })
    }

    async fn replicate(&self, work: &CopyWork) -> Result<Replicated, Error> {
        if work.is_joined && !work.is_gone {
            let expanded = self.catalog.expand_copy_work(work.content, STEP).await?;
            return Ok(if expanded { Replicated::Expanded } else { Replicated::Settled });
        }
        let is_enough = work.is_gone || work.counting() >= work.factor;
        if is_enough || self.engine.recheck_uncounted(work).await? {
            self.catalog.settle_copy_work(work.content).await?;
            return Ok(Replicated::Settled);
        }
        match self.engine.copy_obstacle(work).await? {
            Some(CopyObstacle::Unreachable) => return Ok(Replicated::Unreachable),
            Some(CopyObstacle::NoTarget) => return Ok(Replicated::no_target()),
            None => {}
        }
        Ok(match self.engine.copy_content(work, ReplicaSource::Nothing).await {
            CopyOutcome::Copied(location) | CopyOutcome::Moved(location) => Replicated::Copied(location),
            CopyOutcome::NotNeeded => {
                self.catalog.settle_copy_work(work.content).await?;
                Replicated::Settled
            }
            CopyOutcome::InProgress => {
                // The content may also have been deleted.
                self.catalog.settle_copy_work(work.content).await?;
                Replicated::Postponed("in_progress", "a copy is being written".to_owned())
            }
            CopyOutcome::NoTarget => Replicated::no_target(),
            CopyOutcome::NoSource(why) => Replicated::Postponed("unreadable", why),
            CopyOutcome::Failed(why) => Replicated::Postponed("failed", why),
        })
    }

    /// Counts a result and postpones the work that failed; false if the work was postponed.
    async fn record(&self, work: &CopyWork, result: Replicated, report: &mut Report) -> Result<bool, Error> {
        match result {
            // Counted by the caller.
            Replicated::Unreachable => {}
            Replicated::Settled => report.count("settled", 1),
            Replicated::Expanded => report.count("expanded", 1),
            Replicated::Copied(Location { backend, physical_key }) => {
                report.count("copied", 1);
                let event = Event::new("replication.copied").at(&backend, &physical_key, work.size_bytes);
                report.events.push(event.with("content", work.content.to_string()));
            }
            Replicated::Postponed(outcome, why) => {
                report.count(outcome, 1);
                tracing::info!(content = %work.content, reason = why, "copy not written, retrying later");
                let delay = RETRY.delay(work.attempts.saturating_add(1), 1.0);
                self.catalog.postpone_copy_work(work.content, delay, &why).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }
}
