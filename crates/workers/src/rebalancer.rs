//! Moves copies between backends: with `spread` until their used shares are close, with `pack` towards the first ones.
//!
//! A run plans one pass (`planner.rs`) and executes it batch by batch. Before each batch it reads the states and
//! counters of the backends again.

mod planner;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_catalog::{Catalog, ReplacedCopy, ReplicaSource};
use s3o_engine::{CopyOutcome, Engine};
use s3o_model::rebalance::RebalanceRules;
use s3o_model::shared::Shared;
use serde::Serialize;
use tokio::sync::Notify;

use crate::copy_tasks::CopyBounds;
use crate::{CopyTasks, Error, Event, Report, Worker};
use planner::{PlannedMove, RebalancePlanner};

/// Settings of the rebalancer; a reload replaces them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RebalanceSettings {
    /// How copies are distributed.
    pub rules: RebalanceRules,
    /// Number of copies of one backend that are read and sorted together; also the number of moves between two
    /// readings of the counters.
    pub batch_size: usize,
    /// Number of copies that are moved at a time.
    pub concurrency: usize,
    /// How long the bytes of a moved copy stay for its readers.
    pub reader_grace: Duration,
}

/// Moves copies between backends.
pub struct RebalancerWorker {
    /// Copies, and states of the backends.
    pub catalog: Arc<Catalog>,
    /// Moves the copies.
    pub engine: Engine,
    /// Settings; a reload replaces them.
    pub settings: Shared<RebalanceSettings>,
    /// Wakes the cleanup worker.
    pub cleanup_wakeup: Arc<Notify>,
    /// The copies in progress; they survive a reload.
    pub tasks: CopyTasks,
    /// The pass of the current run.
    pub pass: Mutex<Option<RebalancePlanner>>,
}

/// The moves that a run would make now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RebalancePlan {
    /// In the order of their planning.
    pub moves: Vec<MoveView>,
    /// Bytes of all moves.
    pub bytes: u64,
    /// False if a run continues with further moves, which are planned when these are done.
    pub complete: bool,
}

/// One planned move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MoveView {
    /// Identifier of the content.
    pub content: String,
    /// Key of the copy on the backend that gives it.
    pub physical_key: String,
    /// Size of the copy.
    pub size_bytes: u64,
    /// The backend that gives the copy.
    pub from: String,
    /// The backend that takes it.
    pub to: String,
}

/// The moves that a run of the rebalancer would make now, without making them.
pub async fn plan_rebalance(
    catalog: &Catalog,
    engine: &Engine,
    settings: &RebalanceSettings,
) -> Result<RebalancePlan, Error> {
    let mut planner = RebalancePlanner::new(settings.rules, engine.backend_loads().await?, settings.batch_size);
    let mut moves = Vec::new();
    loop {
        let batch = planner.next_batch(catalog).await?;
        moves.extend(batch.moves.iter().map(MoveView::of));
        if batch.is_last {
            break;
        }
    }
    let bytes = moves.iter().map(|planned| planned.size_bytes).sum();
    Ok(RebalancePlan { moves, bytes, complete: !planner.is_cut() })
}

impl MoveView {
    fn of(planned: &PlannedMove) -> Self {
        Self {
            content: planned.work.content.to_string(),
            physical_key: planned.copy.physical_key.clone(),
            size_bytes: planned.work.size_bytes,
            from: planned.copy.backend.to_string(),
            to: planned.to.to_string(),
        }
    }
}

#[async_trait]
impl Worker for RebalancerWorker {
    fn name(&self) -> &'static str {
        "rebalancer"
    }

    fn begin_run(&self) {
        *self.pass.lock() = None;
    }

    fn yields_to_requests(&self) -> bool {
        true
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let settings = *self.settings.current();
        let loads = self.engine.backend_loads().await?;
        // A tick that fails or is cancelled ends the pass; the next one begins with what was moved.
        let taken = self.pass.lock().take();
        let mut planner = match taken {
            Some(mut planner) => {
                planner.refresh(loads);
                planner
            }
            None => RebalancePlanner::new(settings.rules, loads, settings.batch_size),
        };
        let batch = planner.next_batch(&self.catalog).await?;
        let bounds = CopyBounds::of_tick(settings.concurrency);
        let rest = self.start_moves(batch.moves, settings, bounds).await;
        let is_last = batch.is_last && rest.is_empty();
        planner.put_back(rest);
        self.tasks.report(bounds, report).await?;
        if !report.items.is_empty() {
            self.cleanup_wakeup.notify_one();
        }
        report.more = !is_last || planner.is_cut() || self.tasks.is_busy();
        *self.pass.lock() = (!is_last).then_some(planner);
        Ok(())
    }
}

impl RebalancerWorker {
    /// Starts moves until the time of the tick is over; returns the others.
    async fn start_moves(
        &self,
        moves: Vec<PlannedMove>,
        settings: RebalanceSettings,
        bounds: CopyBounds,
    ) -> Vec<PlannedMove> {
        let mut moves = moves.into_iter().filter(|planned| !self.tasks.is_running(planned.work.content));
        while let Some(planned) = moves.next() {
            let engine = self.engine.clone();
            let content = planned.work.content;
            let run = run_move(engine, planned.clone(), settings.reader_grace);
            if !self.tasks.start(&self.engine, content, bounds, run).await {
                return std::iter::once(planned).chain(moves).collect();
            }
        }
        Vec::new()
    }
}

async fn run_move(engine: Engine, planned: PlannedMove, grace: Duration) -> Result<Report, Error> {
    let replaces = ReplicaSource::Rebalanced(ReplacedCopy { copy: planned.copy.clone(), grace });
    let outcome = engine.move_content(&planned.work, planned.to.clone(), replaces).await;
    let mut report = Report::default();
    record(&planned, &outcome, &mut report);
    Ok(report)
}

fn record(planned: &PlannedMove, outcome: &CopyOutcome, report: &mut Report) {
    let (counted, why) = match outcome {
        CopyOutcome::Moved(target) => {
            report.count("moved", 1);
            let event =
                Event::new("rebalance.moved").at(&target.backend, &target.physical_key, planned.work.size_bytes);
            let event = event.with("from", planned.copy.backend.to_string());
            let event = event.with("from_key", planned.copy.physical_key.clone());
            return report.events.push(event.with("content", planned.work.content.to_string()));
        }
        // The content lacked a copy, so that the old one was kept.
        CopyOutcome::Copied(_) => return report.count("copied", 1),
        CopyOutcome::NotNeeded => ("not_moved", "the copy or the state of a backend changed, or it was not verified"),
        CopyOutcome::InProgress => ("in_progress", "a copy is being written"),
        CopyOutcome::NoTarget => ("no_target", "the target cannot take it"),
        CopyOutcome::NoSource(why) => ("unreadable", why.as_str()),
        CopyOutcome::Failed(why) => ("failed", why.as_str()),
    };
    report.count(counted, 1);
    let (from, to) = (&planned.copy.backend, &planned.to);
    tracing::info!(content = %planned.work.content, %from, %to, reason = why, "copy not moved");
}
