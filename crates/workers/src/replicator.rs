//! Writes the copies that contents lack, those with the fewest copies first.
//!
//! The work is a queue in the catalog. Its rows are written by units that leave a content with too few copies, and by
//! the review that follows a change of a factor or of a backend's state.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_backend::fleet::Fleet;
use s3o_catalog::{Catalog, CopyWork, ReplicaSource};
use s3o_engine::{CopyObstacle, CopyOutcome, Engine};
use s3o_model::backoff::Backoff;
use s3o_model::content::Location;
use tokio::sync::Notify;

use crate::copy_tasks::CopyBounds;
use crate::{CopyTasks, Error, Event, Report, Worker};

/// Number of pieces of joined content, or contents of a review, in one step.
const STEP: usize = 1000;
/// The review waits while this many contents wait for copies.
const AHEAD_MAX: u64 = 10_000;
/// How long contents that this instance cannot reach are left to the others. A backend that becomes usable ends it.
const LEFT_FOR: Duration = Duration::from_mins(5);
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
    /// The copies in progress; they survive a reload.
    pub tasks: CopyTasks,
    /// Wakes the cleanup worker.
    pub cleanup_wakeup: Arc<Notify>,
}

/// Writes the copies that one content lacks.
struct ContentReplication {
    catalog: Arc<Catalog>,
    engine: Engine,
    work: CopyWork,
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
        let bounds = CopyBounds::of_tick(self.settings.concurrency);
        let instance = self.engine.instance();
        let due = self.catalog.due_copy_work_of(false, self.settings.batch_size, Some(instance)).await?;
        let is_full = due.work.len() >= self.settings.batch_size;
        let (left, is_cut) = self.start_copies(due.work, bounds).await?;
        self.catalog.leave_copy_work(&left, instance, LEFT_FOR).await?;
        self.tasks.report(bounds, report).await?;
        if !left.is_empty() || due.has_left_work {
            report.yields = Some("this instance cannot reach the copies or the backends that could take them");
        }
        if !report.items.is_empty() {
            self.cleanup_wakeup.notify_one();
        }
        let reviewed = due.is_reviewing && self.catalog.review_copies(STEP, AHEAD_MAX).await?;
        report.more = is_full || is_cut || reviewed || self.tasks.is_busy();
        Ok(())
    }
}

impl ReplicatorWorker {
    /// Starts the work on these contents. Returns those that this instance cannot reach, and whether the time of the
    /// tick was over before all others were started.
    async fn start_copies(&self, due: Vec<CopyWork>, bounds: CopyBounds) -> Result<(Vec<CopyWork>, bool), Error> {
        let mut left = Vec::new();
        for work in due {
            if self.tasks.is_running(work.content) {
                continue;
            }
            if self.is_out_of_reach(&work).await? {
                left.push(work);
                continue;
            }
            let content = work.content;
            let (catalog, engine) = (Arc::clone(&self.catalog), self.engine.clone());
            let replication = ContentReplication { catalog, engine, work };
            if !self.tasks.start(&self.engine, content, bounds, replication.run()).await {
                return Ok((left, true));
            }
        }
        Ok((left, false))
    }

    /// Judged before a task is started: there may be many of these contents. A copy that must be checked first is
    /// judged later.
    async fn is_out_of_reach(&self, work: &CopyWork) -> Result<bool, Error> {
        let lacks_copies = !work.is_gone && !work.is_joined && work.counting() < work.factor;
        if !lacks_copies || work.copies.iter().any(|copy| copy.is_unproven) {
            return Ok(false);
        }
        Ok(self.engine.copy_obstacle(work).await? == Some(CopyObstacle::Unreachable))
    }
}

impl ContentReplication {
    async fn run(self) -> Result<Report, Error> {
        let replicated = self.replicate().await?;
        let mut report = Report::default();
        self.record(replicated, &mut report).await?;
        Ok(report)
    }

    async fn replicate(&self) -> Result<Replicated, Error> {
        let work = &self.work;
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

    /// Counts a result and postpones the work that failed.
    async fn record(&self, result: Replicated, report: &mut Report) -> Result<(), Error> {
        let work = &self.work;
        match result {
            Replicated::Unreachable => {
                let left = std::slice::from_ref(work);
                self.catalog.leave_copy_work(left, self.engine.instance(), LEFT_FOR).await?;
            }
            Replicated::Settled => report.count("settled", 1),
            Replicated::Expanded => report.count("expanded", 1),
            Replicated::Copied(Location { backend, physical_key, .. }) => {
                report.count("copied", 1);
                let event = Event::new("replication.copied").at(&backend, &physical_key, work.size_bytes);
                report.events.push(event.with("content", work.content.to_string()));
            }
            Replicated::Postponed(outcome, why) => {
                report.count(outcome, 1);
                tracing::info!(content = %work.content, reason = why, "copy not written, retrying later");
                let delay = RETRY.delay(work.attempts.saturating_add(1), 1.0);
                self.catalog.postpone_copy_work(work, delay, &why).await?;
            }
        }
        Ok(())
    }
}
