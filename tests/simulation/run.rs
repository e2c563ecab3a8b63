//! One seed: several processes, one after another, each in a runtime of its own and ended as a crash ends it.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use s3o_cache::CacheSettings;
use s3o_model::entropy::SeededEntropy;
use s3o_model::ids::InstanceId;
use s3o_model::placement::Strategy;
use s3o_model::rebalance::RebalanceRules;
use s3o_tests::database::BlockingDatabase;
use s3o_tests::environment::{Environment, NO_REBALANCE, ProcessSettings, TestBackend};
use s3o_tests::harness::Harness;
use s3o_workers::ReconcileSettings;
use tokio::runtime::Builder;
use tokio::task::{JoinError, JoinSet};

use crate::background::{
    EnvironmentChanges, attach_until_all, change_copies, expire_elsewhere, tick_and_record, tick_at_random,
};
use crate::client::{ClientContext, ClientState, SimulatedClient};
use crate::clock::SimulatedClock;
use crate::fault_schedule::FaultSchedule;
use crate::journal::Journal;
use crate::layers::{CheckedBackend, FaultyCatalog, IllegalDeletes};
use crate::ledger::ClientLedger;
use crate::write_offs::WriteOff;

const CLIENTS: usize = 4;
/// The first backend is soon full, so that writes use the second.
const SMALL_BACKEND_BYTES: u64 = 12_000;
/// The second backend takes larger bodies in parts only.
const PUT_BYTES_MAX: u64 = 1_000;

/// Smaller than all bodies together, with a TTL shorter than a seed takes: entries are evicted and expire.
const CACHE: CacheSettings = CacheSettings { max_bytes: 8_000, object_bytes_max: 3_000, ttl: Duration::from_mins(2) };

/// Total by which the clock jumps ahead in one process, unless the seed is about just that: a call that hangs meanwhile
/// still ends within the late-write window.
const JUMPS_MAX: Duration = Duration::from_mins(25);

/// Shorter than one jump of the clock: running workers lose their claims, too.
const STUCK_AFTER: Duration = Duration::from_mins(4);

pub(super) type SimulatedProcess = Harness<SimulatedClock>;

/// The state of one seed.
pub struct Simulation {
    pub(super) environment: Arc<Environment<SimulatedClock>>,
    pub(super) schedule: Arc<FaultSchedule>,
    pub(super) illegal_deletes: Arc<IllegalDeletes>,
    pub(super) context: Arc<ClientContext>,
    clients: Vec<Arc<Mutex<ClientState>>>,
    pub(super) journal: Journal,
    rng: Rng,
}

/// Runs one seed to its end; panics if a check fails.
pub fn run(seed: u64, journal: &Journal, clock: &Arc<SimulatedClock>, database: Option<&BlockingDatabase>) {
    let mut simulation = Simulation::new(seed, journal, clock, database);
    let mut crashes = simulation.plan_crashes();
    loop {
        let next = crashes.pop();
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("build a runtime");
        runtime.block_on(simulation.run_process(next));
        // Ends every task where it stands.
        drop(runtime);
        if next.is_none() {
            return;
        }
        simulation.journal.count("fault crash");
        simulation.journal.record(format_args!("crash"));
        simulation.context.ledger().lose_all();
    }
}

impl Simulation {
    fn new(seed: u64, journal: &Journal, clock: &Arc<SimulatedClock>, database: Option<&BlockingDatabase>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let has_big = rng.u8(..8) == 0;
        // With two small backends, writes are refused for lack of space.
        let copies = if rng.u8(..3) == 0 { 2 } else { 1 };
        let far_bytes = (!has_big && copies == 1 && rng.u8(..4) == 0).then_some(SMALL_BACKEND_BYTES);
        let dedup = rng.bool();
        let context = ClientContext {
            ledger: Mutex::new(ClientLedger::new(clock.clone())),
            rules: tokio::sync::Mutex::default(),
            clock: clock.clone(),
            journal: journal.clone(),
            budget: Mutex::new(rng.u64(200..=240)),
            has_big,
            dedup,
            writes_off: copies > 1 && seed.is_multiple_of(3),
        };
        let state = |number| ClientState { number, rng: rng.fork(), uploads: Vec::new() };
        let clients = (0..CLIENTS).map(state).map(|state| Arc::new(Mutex::new(state))).collect();
        let schedule = Arc::new(FaultSchedule::new(rng.fork(), journal.clone()));
        // With 5 MiB bodies, parts of a thousand bytes would be thousands of calls.
        let far_put_max = if has_big { u64::MAX } else { PUT_BYTES_MAX };
        let environment = Environment::with_clock(clock.clone(), Arc::new(SeededEntropy::new(rng.u64(..))))
            .with_backend("near", u64::MAX, Some(SMALL_BACKEND_BYTES))
            .with_backend("far", far_put_max, far_bytes);
        let environment = with_spare(environment, copies, seed)
            .with_settings(ProcessSettings { rebalance: rebalance(seed), ..settings(copies) })
            .with_dedup(dedup)
            .with_cache((seed % 2 == 1).then_some(CACHE))
            .on_database(database);
        Self {
            environment: Arc::new(environment),
            schedule,
            illegal_deletes: Arc::default(),
            context: Arc::new(context),
            clients,
            journal: journal.clone(),
            rng,
        }
    }

    /// Operations that are left at each crash, last crash first; at least one.
    fn plan_crashes(&mut self) -> Vec<u64> {
        let crashes = self.rng.u64(1..=3);
        let mut left: Vec<u64> = (0..crashes).map(|_| self.rng.u64(10..190)).collect();
        left.sort_unstable();
        left
    }

    /// One process: until so many operations are left, or to the end of the seed.
    async fn run_process(&mut self, crash_at: Option<u64>) {
        self.environment.clock.resume();
        let process = self.start().await;
        let left_intents = self.count_intents(&process).await;
        self.check_now(&process).await;
        self.create_fixtures(&process).await;
        if self.rng.bool() {
            self.recover_before_clients(&process).await;
        }
        for backend in &self.environment.backends {
            backend.flaky.set_fault_plan(Some(self.schedule.clone()));
        }
        self.schedule.set_active(true);
        let (mut background, mut clients) = (self.spawn_background(&process), self.spawn_clients(&process));
        if let Some(left) = crash_at {
            self.wait_for_crash(left, &mut clients).await;
        } else {
            while let Some(ended) = clients.join_next().await {
                propagate_panic(ended);
            }
            background.abort_all();
            while let Some(ended) = background.join_next().await {
                propagate_panic(ended);
            }
            self.finish(&process, left_intents).await;
        }
        while let Some(ended) = clients.try_join_next().or_else(|| background.try_join_next()) {
            propagate_panic(ended);
        }
        self.environment.clock.pause();
    }

    async fn wait_for_crash(&mut self, left: u64, clients: &mut JoinSet<()>) {
        while self.context.left() > left {
            tokio::time::sleep(Duration::from_millis(7)).await;
            // Without clients, the number would never change.
            if let Some(ended) = clients.try_join_next() {
                propagate_panic(ended);
            }
        }
        let delay = self.rng.u64(..60);
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }

    async fn start(&self) -> SimulatedProcess {
        self.schedule.set_active(false);
        let builder = Harness::builder(&self.environment)
            .catalog_layer(|inner| {
                Arc::new(FaultyCatalog { inner, schedule: self.schedule.clone(), journal: self.journal.clone() })
            })
            .backend_layer(|inner, driver| {
                let (illegal_deletes, schedule) = (self.illegal_deletes.clone(), self.schedule.clone());
                Arc::new(CheckedBackend { inner, driver: driver.clone(), illegal_deletes, schedule })
            });
        builder.start_detached().await
    }

    /// Runs the workers before the clients: intents of the process before are resolved before a client changes their
    /// keys.
    async fn recover_before_clients(&self, process: &SimulatedProcess) {
        process.process.identity.attach().await;
        for worker in &process.process.workers {
            tick_and_record(worker.as_ref(), &self.journal).await;
        }
    }

    /// Lease renewal, attachment, workers, outages and jumps of the clock.
    fn spawn_background(&mut self, process: &SimulatedProcess) -> JoinSet<()> {
        let mut background = JoinSet::new();
        let engine = process.engine.clone();
        background.spawn(async move { engine.keep_leases().await });
        background.spawn(attach_until_all(process.process.identity.clone()));
        for worker in &process.process.workers {
            background.spawn(tick_at_random(worker.clone(), self.rng.fork(), self.journal.clone()));
        }
        let (catalog, ids) = (process.catalog.clone(), process.process.ids().clone());
        background.spawn(expire_elsewhere(catalog, ids, self.rng.fork(), self.journal.clone()));
        if self.environment.settings.copies > 1 {
            let names = self.environment.backends.iter().map(TestBackend::name).collect();
            let (catalog, instance) = (process.catalog.clone(), InstanceId::new(process.process.ids().fresh()));
            background.spawn(change_copies(catalog, instance, names, self.rng.fork(), self.journal.clone()));
        }
        if self.context.writes_off {
            background.spawn(WriteOff::of(self, process).run(self.rng.fork()));
        }
        let changes = EnvironmentChanges {
            clock: self.environment.clock.clone(),
            backends: self.environment.backends.clone(),
            journal: self.journal.clone(),
            jumps: if self.schedule.far_jumps { Duration::MAX } else { JUMPS_MAX },
        };
        background.spawn(changes.run(self.rng.fork()));
        background
    }

    fn spawn_clients(&self, process: &SimulatedProcess) -> JoinSet<()> {
        let client = |state: &Arc<Mutex<ClientState>>| SimulatedClient {
            context: self.context.clone(),
            state: state.clone(),
            engine: process.engine.clone(),
        };
        self.clients.iter().map(|state| client(state).work()).collect()
    }
}

/// Passes beside the requests, whose findings are confirmed within a second.
const FREQUENT_PASSES: ReconcileSettings = ReconcileSettings {
    enabled: true,
    interval: Duration::from_secs(5),
    grace: Duration::from_secs(1),
    max_delete_fraction: 1.0,
};

/// Small batches, so that several are claimed at the same time.
fn settings(copies: usize) -> ProcessSettings {
    let reconcile = FREQUENT_PASSES;
    ProcessSettings { stuck_after: STUCK_AFTER, cleanup_batch: 4, copies, reconcile, ..ProcessSettings::default() }
}

/// Half of the seeds move copies between the backends.
fn rebalance(seed: u64) -> RebalanceRules {
    match seed % 4 {
        0 => RebalanceRules { strategy: Strategy::Spread, threshold: 0.05 },
        1 => RebalanceRules { strategy: Strategy::Pack, threshold: 1.0 },
        _ => NO_REBALANCE,
    }
}

/// With several copies, there is a third backend: the first one is soon full. A fifth of the seeds has a backend that
/// keeps versions.
fn with_spare(environment: Environment<SimulatedClock>, copies: usize, seed: u64) -> Environment<SimulatedClock> {
    if seed.is_multiple_of(5) {
        environment.backends[1].memory.keep_versions();
    }
    if copies == 1 { environment } else { environment.with_backend("spare", u64::MAX, None) }
}

/// A panic in a task is a panic of the run.
fn propagate_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}
