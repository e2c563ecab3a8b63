//! Serving: everything is opened, wired, run, and drained again.

mod aside;
mod catalog;
mod control;
mod greeting;
mod health;
mod kernel_clock;
mod lifecycle;
mod modes;
mod open;
mod open_files;
mod queues;
mod reload;
mod signals;
mod sockets;
mod source;
mod undo;
mod workers;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use s3o_cache::Cache;
use s3o_catalog::{Buckets as _, Longest};
use s3o_engine::{Engine, IntentMetrics};
use s3o_model::clock::{Clock, SystemClock};
use s3o_model::clock_hold::StoreTime;
use s3o_model::entropy::{Entropy, SystemEntropy};
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::shared::Shared;
use s3o_server::admin::{self, AdminParts, AdminToken, MetricsPage};
use s3o_server::audit::Audit;
use s3o_server::listener;
use s3o_server::middleware::{Observer, RequestMetrics};
use s3o_server::s3::{self, Keys, S3Options, SharedKeys};
use s3o_workers::{Budget, ClockGuard, DriftGauge, ExpiryClaims, Identity, Pace, Prober, SharedRules};
use tokio::signal::unix::Signal;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::cli::{Failure, Serve};
use crate::config::Config;
use crate::logging::{self, Levels};
use crate::tally::Tally;
use control::Controls;
use greeting::Listening;
use reload::Reload;
use signals::Signals;
pub use signals::take_sighup;
use source::CredentialStore;
use undo::StartUndo;

/// How long requests in flight may take to finish after a shutdown began.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// How long threads that wait for a disk or the catalog may take to return in the end.
const THREADS_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long the start waits for backends to answer.
const ATTACH_WAIT_MAX: Duration = Duration::from_secs(3);

/// Serves until SIGTERM or SIGINT; `hang_ups` is the SIGHUP stream of [`take_sighup`].
pub fn run(arguments: &Serve, hang_ups: Signal) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::of("cannot start", error))?;
    let arguments = &source::with_file(arguments);
    let outcome = runtime.block_on(async {
        // Taken before anything else is done: who is asked to stop, or to read its settings again, while it starts is not
        // killed by it.
        let signals = Signals::take(hang_ups).map_err(|error| Failure::of("cannot start", error))?;
        let config = source::load(arguments)?;
        let levels = logging::start(arguments.log_format, arguments.log.as_deref());
        serve(config, arguments, levels, signals).await
    });
    // A thread that a hanging disk keeps must not keep the process.
    runtime.shutdown_timeout(THREADS_WAIT_MAX);
    outcome
}

/// What everything is made with.
struct Ground {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    ids: IdSource,
    instance: InstanceId,
    cleanup_bell: Arc<Notify>,
    registry: Arc<Mutex<Registry>>,
    audit: Arc<Audit>,
    /// What requests and background work share.
    budget: Arc<Budget>,
    intent_metrics: IntentMetrics,
    drift: DriftGauge,
    /// Survives a reload, which makes workers anew.
    cleanup_pace: Pace,
    expiry_claims: ExpiryClaims,
    /// The rules of the configuration; a reload replaces them.
    lifecycle_rules: SharedRules,
    /// How far ahead moments in the catalog can lie; a reload replaces it.
    longest: Shared<Longest>,
    /// The date that a store last sent.
    store_time: Arc<StoreTime>,
    /// Watches the clock, where this process's clock counts.
    clock_guard: OnceLock<Arc<ClockGuard>>,
}

impl Ground {
    fn new(config: &Config) -> Result<Self, Failure> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        let ids = IdSource::new(Arc::clone(&clock), Arc::clone(&entropy));
        let instance = InstanceId::new(ids.fresh());
        let opened = Audit::open(&config.audit, Arc::clone(&clock));
        let audit = opened.map_err(|error| Failure::of(&format!("audit {}", config.audit.display()), error))?;
        let mut registry = Registry::default();
        audit.register(&mut registry);
        let drift = DriftGauge::register(&mut registry, config.backends.iter().map(|backend| backend.name.clone()));
        let (registry, audit) = (Arc::new(Mutex::new(registry)), Arc::new(audit));
        let budget = Budget::new(config.server.max_concurrent_requests);
        let intent_metrics = IntentMetrics::default();
        Ok(Self {
            clock,
            entropy,
            ids,
            instance,
            cleanup_bell: Arc::default(),
            registry,
            audit,
            budget,
            intent_metrics,
            drift,
            cleanup_pace: Pace::default(),
            expiry_claims: ExpiryClaims::default(),
            longest: Shared::new(workers::longest(config)),
            lifecycle_rules: SharedRules::new(config.lifecycle.rules.iter().cloned().collect()),
            store_time: Arc::default(),
            clock_guard: OnceLock::new(),
        })
    }

    fn clock_guard(&self) -> Option<Arc<ClockGuard>> {
        self.clock_guard.get().cloned()
    }

    fn with_registry<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.registry.lock())
    }
}

/// What the admin API acts upon.
fn admin_parts(
    controls: Arc<Controls>,
    token: &AdminToken,
    metrics: MetricsPage,
    levels: Levels,
    ground: &Ground,
) -> AdminParts {
    AdminParts {
        token: token.clone(),
        readiness: controls.clone(),
        metrics,
        workers: controls.clone(),
        backends: controls.clone(),
        queues: controls.clone(),
        lifecycle: controls.clone(),
        status: controls.clone(),
        catalog: controls.clone(),
        clock: controls.clone(),
        verify: controls,
        log_level: Arc::new(levels),
        audit: Arc::clone(&ground.audit),
        entropy: Arc::clone(&ground.entropy),
    }
}

async fn serve(mut config: Config, arguments: &Serve, levels: Levels, signals: Signals) -> Result<(), Failure> {
    let Signals { stop, hang_ups } = signals;
    source::warn(&config);
    let (s3_socket, admin_socket) = (sockets::bind(config.server.listen)?, sockets::bind(config.admin.listen)?);
    let mut undo = StartUndo::new(&config, &arguments.data);
    let ground = Arc::new(Ground::new(&config)?);
    let catalog = open::catalog(&config.database, &ground).await?;
    undo.hold(&catalog);
    let store = CredentialStore::new(&config.database, &catalog, &arguments.data);
    let generated = source::complete_credentials(&mut config, &store, &ground.entropy).await?;
    let fleet = open::fleet(&config, &catalog, &ground).await?;
    let limits = open_files::prepare(&config.server);
    let identity = open::identity(&config, &catalog, &fleet, &ground).await?;
    let cache = open::cache(&config, &catalog, &ground).await?;
    let engine = open::engine(&config, &catalog, &fleet, cache.clone(), &ground);
    for bucket in config.buckets.names().filter(|_| !catalog.condition().is_damaged()) {
        catalog.create_bucket(bucket).await.map_err(|error| Failure::of("catalog", error))?;
    }
    let parts =
        workers::Parts { config: &config, catalog: &catalog, fleet: &fleet, identity: &identity, ground: &ground };
    let runner = open::runner(&parts)?;
    let (s3_socket, admin_socket) = (s3_socket.listen()?, admin_socket.listen()?);
    undo.keep();
    // Backends are written to only by a start that nothing can fail any more. Those that do not answer in time are tried
    // again beside everything else.
    tokio::time::timeout(ATTACH_WAIT_MAX, identity.attach()).await.unwrap_or_default();
    let observer = ground.with_registry(|registry| {
        let names = || fleet.backends().map(|backend| backend.name().clone());
        runner.register(registry, names());
        ground.intent_metrics.register(registry, names());
        Observer::new(RequestMetrics::register(registry), Arc::clone(&ground.entropy), Arc::clone(&ground.audit))
    });
    let stale_timeout = config.cleanup.multipart_stale_timeout;
    let tally = Arc::new(Tally::new(Arc::clone(&catalog), Arc::clone(&ground.clock), stale_timeout));
    let gauges = open::gauges(&catalog, &tally, &fleet, &ground);
    health::warn_of_unconfigured(&catalog, &fleet).await;
    let controls = Arc::new(Controls {
        runner: Arc::clone(&runner),
        lifecycle_rules: ground.lifecycle_rules.clone(),
        identity: Arc::clone(&identity),
        catalog: Arc::clone(&catalog),
        tally: Arc::clone(&tally),
        fleet: Arc::clone(&fleet),
        office: queues::open_office(&catalog, &fleet, &identity, &ground),
        restore: catalog::restore_of(&config.database),
        verifier: control::verifier(&catalog, &fleet, &identity, &ground.longest),
        instance: ground.instance,
        cache: cache.clone(),
        clock: Arc::clone(&ground.clock),
        clock_guard: ground.clock_guard(),
    });
    let token = AdminToken::new(config.admin.token.as_deref().unwrap_or_default());
    let metrics = MetricsPage { registry: Arc::clone(&ground.registry), refresh: Arc::new(gauges) };
    let router = admin::router(admin_parts(controls, &token, metrics, levels, &ground));
    let keys = SharedKeys::new(config.access_keys.iter().cloned().collect::<Keys>());
    let door = s3::service(Arc::new(engine.clone()), keys.clone(), s3_options(&config, &ground), observer);
    modes::warn(&config, arguments);
    greeting::print(&config, generated.as_ref(), &Listening::new(&config, &s3_socket, &admin_socket));
    let prober = open::prober(&config, &fleet, &identity, &ground);
    let reload = Reload {
        probe_intervals: prober.intervals.clone(),
        arguments: arguments.clone(),
        ground: Arc::clone(&ground),
        catalog,
        fleet,
        identity: Arc::clone(&identity),
        engine: engine.clone(),
        runner: Arc::clone(&runner),
        tally,
        keys,
        token,
        store,
        config,
    };
    let (stopping, stopped) = watch::channel(false);
    let mut upkeep = tokio::spawn(upkeep(engine.clone(), (identity, prober), cache, (reload, hang_ups)));
    let workers = tokio::spawn(runner.serve(stopped.clone()));
    let s3 = tokio::spawn(listener::serve(s3_socket, door, limits, told(stopped.clone()), DRAIN_MAX));
    let (router, limits) = (listener::router_service(router), open_files::ADMIN_LIMITS);
    let admin = tokio::spawn(listener::serve(admin_socket, router, limits, told(stopped), DRAIN_MAX));
    let outcome = tokio::select! {
        () = stop.asked() => Ok(()),
        // Without it leases are not renewed and backends are not watched: the next start recovers what this one leaves.
        ended = &mut upkeep => {
            let why = ended.err().map_or_else(String::new, |why| why.to_string());
            Err(Failure::of("background work ended", why))
        }
    };
    tracing::info!("stopping: requests in flight are finished first");
    stopping.send_replace(true);
    finish([s3, admin, workers], &engine).await?;
    upkeep.abort();
    ground.audit.close();
    tracing::info!("stopped");
    outcome
}

/// Waits for the listeners and workers, and then for what requests left to do.
async fn finish(tasks: [JoinHandle<()>; 3], engine: &Engine) -> Result<(), Failure> {
    for task in tasks {
        task.await.map_err(|error| Failure::of("stopping", error))?;
    }
    if tokio::time::timeout(DRAIN_MAX, engine.tasks().drained()).await.is_err() {
        tracing::warn!(tasks = engine.tasks().count(), "work left to the next start");
    }
    // What the catalog did not take is lost with this process, so it is offered once more.
    tokio::time::timeout(DRAIN_MAX, engine.finish_leftovers()).await.unwrap_or_default();
    Ok(())
}

fn s3_options(config: &Config, ground: &Ground) -> S3Options {
    S3Options {
        region: config.server.region.clone(),
        domain: config.server.domain.clone(),
        max_concurrent_requests: config.server.max_concurrent_requests,
        min_transfer_rate: config.server.min_transfer_rate,
        max_reserved_share: config.server.max_reserved_share,
        budget: Arc::clone(&ground.budget),
    }
}

/// What goes on beside requests and workers, for as long as the process lives.
async fn upkeep(
    engine: Engine,
    (identity, prober): (Arc<Identity>, Prober),
    cache: Option<Arc<Cache>>,
    (reload, hang_ups): (Reload, Signal),
) {
    let clock_guard = reload.ground.clock_guard();
    tokio::join!(
        engine.keep_leases(),
        identity.watch(),
        prober.serve(),
        keep_cache(cache.as_deref()),
        keep_clock(clock_guard.as_deref()),
        reload.whenever_asked(hang_ups)
    );
}

async fn keep_cache(cache: Option<&Cache>) {
    if let Some(cache) = cache {
        cache.upkeep().await;
    }
}

async fn keep_clock(guard: Option<&ClockGuard>) {
    if let Some(guard) = guard {
        guard.keep().await;
    }
}

async fn told(mut stopped: watch::Receiver<bool>) {
    // A sender that went away is a stop, too.
    stopped.wait_for(|stop| *stop).await.map(drop).unwrap_or_default();
}
