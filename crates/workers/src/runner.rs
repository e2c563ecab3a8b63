//! The runner: when workers run, who may, how long a run goes on, what is recorded of it.

mod run;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex as Lock;
use prometheus_client::registry::Registry;
use s3o_catalog::{Locks, Runs, WorkerState};
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::entropy::Entropy;
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::JoinSet;

use crate::budget::Budget;
use crate::clock_guard::ClockGuard;
use crate::metrics::Metrics;
use crate::report::{Outcome, Report, RunReport};
use crate::schedule::Scheduled;
use crate::{Error, Event, Schedule};

use run::{Asked, Ended};
pub use view::WorkerView;

/// How soon a loop that ended by a fault of its own is started again.
const RESTART_REST: Duration = Duration::from_secs(1);
/// How long rings of the bell are gathered behind a run.
const GATHER: Duration = Duration::from_millis(100);
/// How soon a run follows one that spent its budget with work left.
const UNFINISHED_REST: Duration = Duration::from_millis(100);

/// Something that happens by itself.
#[async_trait]
pub trait Worker: Send + Sync {
    /// Its name, as the outside world knows it.
    fn name(&self) -> &'static str;

    /// Does one bounded batch and notes what it did as it goes, so that a tick which fails leaves
    /// out nothing. It may be dropped anywhere when it takes too long: what it claimed is then
    /// free again in time.
    async fn tick(&self, report: &mut Report) -> Result<(), Error>;

    /// Whether the clock decides what it removes: then it waits while the clock is in doubt.
    fn is_decided_by_time(&self) -> bool {
        false
    }

    /// Whether its backlog can wait for requests: then it rests between full batches while they come.
    fn is_patient(&self) -> bool {
        false
    }
}

/// Hears of every run that did something or failed, and of what happened in it.
#[async_trait]
pub trait RunObserver: Send + Sync {
    /// Things happened in a run. It goes on when they were noted.
    async fn happened(&self, worker: &'static str, run_id: &str, events: Vec<Event>);

    /// A run has ended. Whoever asked for it is answered when that was noted.
    async fn observed(&self, run: &RunReport);
}

/// Discards every notification; for tests and tools that run no server.
#[async_trait]
impl RunObserver for () {
    async fn happened(&self, _worker: &'static str, _run_id: &str, _events: Vec<Event>) {}

    async fn observed(&self, _run: &RunReport) {}
}

/// What a runner is made of.
pub struct RunnerParts {
    /// The workers and when they run.
    pub workers: Vec<Scheduled>,
    /// What the catalog knows of their runs.
    pub runs: Arc<dyn Runs>,
    /// The locks between instances.
    pub locks: Arc<dyn Locks>,
    /// What is shared with requests.
    pub budget: Arc<Budget>,
    /// Who hears of runs.
    pub observer: Arc<dyn RunObserver>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Says whether the clock is in doubt, where this process's clock counts.
    pub clock_guard: Option<Arc<ClockGuard>>,
    /// Spreads what would happen at once.
    pub entropy: Arc<dyn Entropy>,
    /// This process.
    pub instance: InstanceId,
    /// How long runs under way may go on once the shutdown has begun.
    pub drain_max: Duration,
}

/// Runs the workers.
#[derive(Clone)]
pub struct Runner {
    room: Arc<Room>,
}

struct Room {
    slots: Vec<Arc<Slot>>,
    parts: Surroundings,
    ids: IdSource,
    metrics: Metrics,
    stopping: AtomicBool,
}

/// The parts that are not workers.
struct Surroundings {
    runs: Arc<dyn Runs>,
    locks: Arc<dyn Locks>,
    budget: Arc<Budget>,
    observer: Arc<dyn RunObserver>,
    clock: Arc<dyn Clock>,
    clock_guard: Option<Arc<ClockGuard>>,
    entropy: Arc<dyn Entropy>,
    instance: InstanceId,
    drain_max: Duration,
}

/// One worker.
struct Slot {
    name: &'static str,
    /// The worker as it is set up now; a tick keeps the one that it began with.
    scheduled: Shared<Scheduled>,
    /// Runs of one worker do not overlap in one process.
    turn: Mutex<()>,
    /// Rung when the worker was resumed or set up anew.
    nudged: Notify,
    failures: AtomicU32,
    recorded: AtomicU32,
    seen: Lock<Seen>,
}

/// What this process remembers of a worker.
#[derive(Default)]
struct Seen {
    last_run: Option<RunReport>,
    next_due_at: Option<Timestamp>,
}

/// What comes next for a worker.
struct Next {
    rest: Duration,
    /// Whether it runs then although another run was not long ago.
    at_any_rate: bool,
    /// Whether the bell may shorten the rest.
    hears_bell: bool,
}

impl Slot {
    fn new(scheduled: Scheduled) -> Self {
        Self {
            name: scheduled.worker.name(),
            scheduled: Shared::new(scheduled),
            turn: Mutex::default(),
            nudged: Notify::new(),
            failures: AtomicU32::new(0),
            recorded: AtomicU32::new(0),
            seen: Lock::default(),
        }
    }

    fn schedule(&self) -> Schedule {
        self.scheduled.current().schedule.clone()
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock())
    }
}

impl Runner {
    /// A runner of these workers.
    #[must_use]
    pub fn new(parts: RunnerParts) -> Self {
        let RunnerParts { workers, runs, locks, budget, observer, clock, .. } = parts;
        let RunnerParts { clock_guard, entropy, instance, drain_max, .. } = parts;
        let ids = IdSource::new(Arc::clone(&clock), Arc::clone(&entropy));
        let parts = Surroundings { runs, locks, budget, observer, clock, clock_guard, entropy, instance, drain_max };
        let metrics = Metrics::default();
        let slots = workers.into_iter().map(|scheduled| {
            metrics.introduce(scheduled.worker.name());
            Arc::new(Slot::new(scheduled))
        });
        let slots = slots.collect();
        Self { room: Arc::new(Room { slots, parts, ids, metrics, stopping: AtomicBool::new(false) }) }
    }

    /// Shows what the workers do to these backends to whoever reads the metrics.
    pub fn register(&self, registry: &mut Registry, backends: impl Iterator<Item = BackendName>) {
        self.room.metrics.introduce_backends(backends);
        self.room.metrics.register(registry);
    }

    /// Runs every worker on its schedule until the shutdown begins. Runs under way finish their
    /// tick; those that take too long are given up.
    pub async fn serve(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        let room = &self.room;
        let names: Vec<&str> = room.slots.iter().map(|slot| slot.name).collect();
        if let Err(error) = room.parts.runs.enter_workers(&names).await {
            tracing::warn!(%error, "workers not entered");
        }
        let mut loops = JoinSet::new();
        for slot in &room.slots {
            loops.spawn(supervise(Arc::clone(room), Arc::clone(slot), shutdown.clone()));
        }
        // A sender that went away is a shutdown, too.
        shutdown.wait_for(|stop| *stop).await.map(drop).unwrap_or_default();
        room.stopping.store(true, Ordering::SeqCst);
        let drained = async {
            while loops.join_next().await.is_some() {}
            for slot in &room.slots {
                drop(slot.turn.lock().await);
            }
        };
        if tokio::time::timeout(room.parts.drain_max, drained).await.is_err() {
            tracing::warn!("worker runs given up at the shutdown");
        }
    }

    /// Runs one worker now, paused or not, when it is its turn; `None` if there is none of that
    /// name. The run goes on when the caller no longer waits.
    pub async fn run_now(&self, name: &str) -> Option<RunReport> {
        let slot = Arc::clone(self.slot(name)?);
        let (room, worker) = (Arc::clone(&self.room), slot.name);
        let run = tokio::spawn(async move {
            let _turn = slot.turn.lock().await;
            room.run(&slot, Asked::ByHand).await
        });
        Some(run.await.map_or_else(|error| self.room.cut_off(worker, &error), |ended| ended.report))
    }

    /// Leaves out a worker's scheduled runs, on every instance, until it is resumed; says whether
    /// there is one of that name.
    pub async fn pause(&self, name: &str) -> Result<bool, Error> {
        self.set_paused(name, true).await
    }

    /// Lets a worker go on; says whether there is one of that name.
    pub async fn resume(&self, name: &str) -> Result<bool, Error> {
        self.set_paused(name, false).await
    }

    async fn set_paused(&self, name: &str, paused: bool) -> Result<bool, Error> {
        let Some(slot) = self.slot(name) else { return Ok(false) };
        self.room.parts.runs.set_paused(slot.name, paused).await?;
        tracing::info!(worker = name, paused, "worker paused or resumed");
        if !paused {
            slot.nudged.notify_one();
        }
        Ok(true)
    }

    /// Sets workers up anew: each takes the place of the one with its name, from its next tick on.
    pub fn replace(&self, workers: Vec<Scheduled>) {
        for scheduled in workers {
            if let Some(slot) = self.slot(scheduled.worker.name()) {
                slot.scheduled.replace(scheduled);
                slot.nudged.notify_one();
            }
        }
    }

    /// Where every worker stands.
    pub async fn list(&self) -> Result<Vec<WorkerView>, Error> {
        let states = self.room.parts.runs.worker_states().await?;
        Ok(self.room.slots.iter().map(|slot| slot.view(state_of(slot, &states))).collect())
    }

    fn slot(&self, name: &str) -> Option<&Arc<Slot>> {
        self.room.slots.iter().find(|slot| slot.name == name)
    }
}

fn state_of<'a>(slot: &Slot, states: &'a [WorkerState]) -> Option<&'a WorkerState> {
    states.iter().find(|state| state.worker == slot.name)
}

/// Keeps the loop of one worker alive: a fault of the runner or of an observer ends a round of
/// it, not the worker.
async fn supervise(room: Arc<Room>, slot: Arc<Slot>, shutdown: watch::Receiver<bool>) {
    loop {
        // Dropping a set ends what is in it.
        let mut round = JoinSet::new();
        let (inner, served, mut stop) = (Arc::clone(&room), Arc::clone(&slot), shutdown.clone());
        round.spawn(async move { inner.serve_one(&served, &mut stop).await });
        match round.join_next().await {
            Some(Err(error)) => tracing::error!(worker = slot.name, %error, "worker loop is started again"),
            Some(Ok(())) | None => return,
        }
        tokio::time::sleep(RESTART_REST).await;
    }
}

impl Room {
    async fn serve_one(self: &Arc<Self>, slot: &Arc<Slot>, shutdown: &mut watch::Receiver<bool>) {
        let mut next = Next { rest: self.first_rest(slot).await, at_any_rate: false, hears_bell: true };
        loop {
            let due = self.parts.clock.now().after(next.rest);
            slot.seen(|seen| seen.next_due_at = Some(due));
            let woken = tokio::select! {
                biased;
                // A sender that went away is a shutdown, too.
                _ = shutdown.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(next.rest) => next.at_any_rate,
                () = rung(slot, next.hears_bell) => true,
                () = slot.nudged.notified() => false,
            };
            next = self.turn(slot, woken).await;
        }
    }

    async fn first_rest(&self, slot: &Slot) -> Duration {
        let unit = self.parts.entropy.next_unit();
        let states = self.parts.runs.worker_states().await.unwrap_or_else(|error| {
            tracing::warn!(worker = slot.name, %error, "last runs not known");
            Vec::new()
        });
        let state = state_of(slot, &states);
        if let Some(moment) = state.and_then(|state| state.last_success_at) {
            self.metrics.succeeded(slot.name, moment);
        }
        slot.schedule().first_rest(state, unit)
    }

    /// One scheduled turn: looks whether the worker is to run, and runs it.
    async fn turn(self: &Arc<Self>, slot: &Arc<Slot>, woken: bool) -> Next {
        let _turn = slot.turn.lock().await;
        let schedule = slot.schedule();
        let unit = self.parts.entropy.next_unit();
        let states = match self.parts.runs.worker_states().await {
            Ok(states) => states,
            Err(error) => {
                tracing::warn!(worker = slot.name, %error, "worker cannot run");
                self.metrics.not_run(slot.name, Outcome::Error);
                return Next { rest: schedule.rest_after_skip(unit), at_any_rate: woken, hears_bell: false };
            }
        };
        let state = state_of(slot, &states);
        if state.is_some_and(|state| state.paused) {
            self.metrics.not_run(slot.name, Outcome::Skipped);
            return Next { rest: schedule.interval, at_any_rate: false, hears_bell: false };
        }
        if let Some(rest) = schedule.rest_until_due(state).filter(|_| !woken) {
            return Next { rest, at_any_rate: false, hears_bell: true };
        }
        let ended = self.run(slot, Asked::BySchedule(state)).await;
        slot.next(&ended, unit)
    }
}

impl Slot {
    /// What comes after a run.
    fn next(&self, ended: &Ended, unit: f64) -> Next {
        let schedule = self.schedule();
        match ended.report.outcome {
            Outcome::Ok if ended.unfinished => {
                Next { rest: UNFINISHED_REST.min(schedule.interval), at_any_rate: true, hears_bell: false }
            }
            Outcome::Ok => Next { rest: schedule.interval, at_any_rate: false, hears_bell: true },
            Outcome::Skipped => Next { rest: schedule.rest_after_skip(unit), at_any_rate: false, hears_bell: false },
            Outcome::Error | Outcome::Panicked => {
                let failures = self.failures.load(Ordering::Relaxed);
                Next { rest: schedule.rest_after_failure(failures, unit), at_any_rate: false, hears_bell: false }
            }
        }
    }
}

/// Ends when the bell has been rung; never, where there is none or it is not to be heard.
async fn rung(slot: &Slot, hears_bell: bool) {
    match slot.schedule().bell.filter(|_| hears_bell) {
        Some(bell) => {
            tokio::time::sleep(GATHER).await;
            bell.notified().await;
        }
        None => std::future::pending().await,
    }
}
