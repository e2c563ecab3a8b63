//! Test harness: a runner on a real catalog, a clock that follows the runtime's paused time, and
//! scripted workers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use s3o_catalog::{Catalog, Locks, Mode, ProcessLocks, RunRow, Sqlite, SqliteOptions, WorkerState};
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::entropy::SeededEntropy;
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::names::BackendName;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::{
    Budget, ClockGuard, Error, Event, Kind, Report, RunObserver, RunReport, Runner, RunnerParts, Schedule, Scheduled,
    Worker,
};

pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_mins(1);
pub const HOUR: Duration = Duration::from_hours(1);

/// Follows the time of the Tokio runtime.
pub struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000).after(self.0.elapsed())
    }

    fn since_boot(&self) -> Duration {
        self.0.elapsed()
    }
}

/// What a tick does.
#[derive(Clone, Copy)]
pub enum Act {
    /// This many items in a short batch.
    Did(u64),
    /// One item after this time, with more waiting.
    Full(Duration),
    Fail,
    /// One item and an event, then an error.
    FailHalfWay,
    Panic,
    /// No item: another instance should do the work.
    Yield,
    /// One item, after this time.
    Takes(Duration),
}

/// A worker that follows a script; after its end it is idle.
pub struct ScriptedWorker {
    name: &'static str,
    script: Mutex<VecDeque<Act>>,
    ticks: Mutex<Vec<Instant>>,
}

impl ScriptedWorker {
    pub fn new(name: &'static str, script: impl IntoIterator<Item = Act>) -> Arc<Self> {
        Arc::new(Self { name, script: Mutex::new(script.into_iter().collect()), ticks: Mutex::default() })
    }

    /// Start of every tick.
    pub fn ticks(&self) -> Vec<Instant> {
        self.ticks.lock().clone()
    }

    /// Times between consecutive ticks.
    pub fn gaps(&self) -> Vec<Duration> {
        self.ticks().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    pub fn on(self: &Arc<Self>, kind: Kind, interval: Duration) -> Scheduled {
        let schedule = Schedule { interval, kind, bell: None, deadline: 10 * MINUTE, enabled: true };
        Scheduled { worker: self.clone(), schedule }
    }

    pub fn with_bell(self: &Arc<Self>, kind: Kind, interval: Duration, bell: &Arc<Notify>) -> Scheduled {
        let mut scheduled = self.on(kind, interval);
        scheduled.schedule.bell = Some(Arc::clone(bell));
        scheduled
    }
}

#[async_trait]
impl Worker for ScriptedWorker {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        self.ticks.lock().push(Instant::now());
        let act = self.script.lock().pop_front();
        match act {
            None => {}
            Some(Act::Did(items)) => report.count("success", items),
            Some(Act::Full(duration)) => {
                tokio::time::sleep(duration).await;
                report.count("success", 1);
                report.more = true;
            }
            Some(Act::FailHalfWay) => {
                report.count("success", 1);
                report.events.push(Event::new("scripted.happened"));
                return Err(Error::NoSuchBackend("scripted".to_owned()));
            }
            Some(Act::Fail) => return Err(Error::NoSuchBackend("scripted".to_owned())),
            Some(Act::Panic) => panic!("scripted"),
            Some(Act::Yield) => report.yields = Some("scripted"),
            Some(Act::Takes(duration)) => {
                tokio::time::sleep(duration).await;
                report.count("success", 1);
                report.count("stale", 1);
                let disk: BackendName = "disk".parse().expect("a name");
                report.count_at("recovered", &disk);
            }
        }
        Ok(())
    }

    fn yields_to_requests(&self) -> bool {
        self.name == "expiry"
    }

    fn is_time_dependent(&self) -> bool {
        self.name == "lifecycle"
    }
}

/// Records every notification; panics once if `panics` is set.
#[derive(Default)]
pub struct RecordingObserver {
    pub runs: Mutex<Vec<RunReport>>,
    pub events: Mutex<Vec<(String, Event)>>,
    pub panics: Mutex<bool>,
}

#[async_trait]
impl RunObserver for RecordingObserver {
    async fn happened(&self, _worker: &'static str, run_id: &str, events: Vec<Event>) {
        self.events.lock().extend(events.into_iter().map(|event| (run_id.to_owned(), event)));
    }

    async fn observed(&self, run: &RunReport) {
        let panics = std::mem::take(&mut *self.panics.lock());
        assert!(!panics, "scripted");
        self.runs.lock().push(run.clone());
    }
}

/// A catalog that outlives the runners on it.
pub struct Harness {
    pub catalog: Arc<Catalog>,
    pub locks: Arc<dyn Locks>,
    pub budget: Arc<Budget>,
    pub observer: Arc<RecordingObserver>,
    pub clock_guard: Option<Arc<ClockGuard>>,
    clock: Arc<RuntimeClock>,
    _folder: tempfile::TempDir,
}

/// A runner whose `serve` is running.
pub struct Serving {
    pub runner: Arc<Runner>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Stops the runner and waits for its end.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.task.await.expect("no panic");
    }

    /// The metrics in the text format.
    pub fn metrics(&self) -> String {
        let mut registry = Registry::default();
        self.runner.register(&mut registry, std::iter::empty());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
        text
    }
}

impl Harness {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(RuntimeClock(Instant::now()));
        let path = folder.path().join("catalog.db");
        let driver =
            Sqlite::open(&SqliteOptions { path, mode: Mode::Inline, clock: clock.clone() }).expect("a catalog");
        Self {
            catalog: Arc::new(Catalog::new(Arc::new(driver))),
            locks: Arc::new(ProcessLocks::new("other")),
            budget: Budget::new(8),
            observer: Arc::default(),
            clock,
            clock_guard: None,
            _folder: folder,
        }
    }

    pub fn runner(&self, workers: Vec<Scheduled>, seed: u64) -> Arc<Runner> {
        let entropy = Arc::new(SeededEntropy::new(seed));
        let ids = IdSource::new(self.clock.clone(), entropy.clone());
        Arc::new(Runner::new(RunnerParts {
            workers,
            runs: self.catalog.clone(),
            locks: self.locks.clone(),
            budget: Arc::clone(&self.budget),
            observer: self.observer.clone(),
            clock: self.clock.clone(),
            clock_guard: self.clock_guard.clone(),
            entropy,
            instance: InstanceId::new(ids.fresh()),
            drain_max: 30 * SECOND,
        }))
    }

    pub fn serve(&self, workers: Vec<Scheduled>) -> Serving {
        self.serve_with(workers, 7)
    }

    pub fn serve_with(&self, workers: Vec<Scheduled>, seed: u64) -> Serving {
        let runner = self.runner(workers, seed);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::task::spawn(Arc::clone(&runner).serve(stopped));
        Serving { runner, stop, task }
    }

    /// Every recorded run, newest first.
    pub async fn history(&self) -> Vec<RunRow> {
        self.catalog.runs(None, None, 10_000).await.expect("runs")
    }

    pub async fn state(&self, worker: &str) -> WorkerState {
        let states = self.catalog.worker_states().await.expect("states");
        states.into_iter().find(|state| state.worker == worker).expect("that worker")
    }
}

pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}
