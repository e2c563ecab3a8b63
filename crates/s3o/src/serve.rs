//! Serving: everything is opened, wired, run, and drained again.

mod control;
mod queues;
mod signals;
mod workers;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::registry::Registry;
use s3o_backend::Fleet;
use s3o_catalog::{
    Buckets as _, Catalog, Identities as _, Intents as _, Locks, Mode, Postgres, PostgresLocks, PostgresOptions,
    ProcessLocks, Sqlite, SqliteOptions,
};
use s3o_engine::{Engine, EngineParts, IntentMetrics, Settings};
use s3o_model::clock::{Clock, SystemClock};
use s3o_model::entropy::{Entropy, SystemEntropy};
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::shared::Shared;
use s3o_server::admin::{self, AdminParts, AdminToken, MetricsPage};
use s3o_server::audit::Audit;
use s3o_server::listener;
use s3o_server::middleware::{Observer, RequestMetrics};
use s3o_server::s3::{self, Access, AccessKey, Keys, S3Options, SharedKeys};
use s3o_workers::{Budget, Identity, IdentityParts, Runner, RunnerParts};
use tokio::net::TcpListener;
use tokio::signal::unix::Signal;
use tokio::sync::{Notify, watch};

use crate::cli::{Failure, Serve};
use crate::config::{Config, Database};
use crate::credentials::Credentials;
use crate::fleet::{self, Surroundings};
use crate::gauges::{BackendMeter, CatalogGauges};
use crate::logging::{self, Levels};
use crate::tally::Tally;
use control::Controls;
use signals::Signals;

/// How long requests in flight may take to finish after a shutdown began.
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// How long a request waits for a connection to the catalog.
const CATALOG_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long the start waits for backends to answer.
const ATTACH_WAIT_MAX: Duration = Duration::from_secs(3);
/// How often a backend that was not reached yet is tried again.
const ATTACH_INTERVAL: Duration = Duration::from_secs(2);

/// Serves until it is told to stop.
pub fn run(arguments: &Serve) -> Result<(), Failure> {
    let mut config = match &arguments.config {
        Some(path) => Config::load(path)?,
        None => Config::embedded(&arguments.data),
    };
    config.server.listen = arguments.listen.unwrap_or(config.server.listen);
    config.admin.listen = arguments.admin_listen.unwrap_or(config.admin.listen);
    let levels = logging::start(arguments.log_format, arguments.log.as_deref());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::of("cannot start", error))?;
    runtime.block_on(async {
        // Taken before anything else is done: who is asked to stop while it starts is not killed by it.
        let signals = Signals::take().map_err(|error| Failure::of("cannot start", error))?;
        serve(config, &arguments.data, levels, signals).await
    })
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
        })
    }

    fn with_registry<T>(&self, register: impl FnOnce(&mut Registry) -> T) -> T {
        register(&mut self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

async fn serve(mut config: Config, data: &Path, levels: Levels, signals: Signals) -> Result<(), Failure> {
    let Signals { stop, hang_ups } = signals;
    let ground = Ground::new(&config)?;
    let catalog = open_catalog(&config.database, &ground).await?;
    let first_start = complete_credentials(&mut config, data, ground.entropy.as_ref())?;
    let fleet = open_fleet(&config, &catalog, &ground).await?;
    let s3_socket = bind(config.server.listen).await?;
    let admin_socket = bind(config.admin.listen).await?;
    let identity = open_identity(&config, &catalog, &fleet, &ground).await?;
    // Those that do not answer in time are tried again beside everything else.
    tokio::time::timeout(ATTACH_WAIT_MAX, identity.attach()).await.unwrap_or_default();
    let engine = open_engine(&config, &catalog, &fleet, &ground);
    for bucket in config.buckets.names() {
        catalog.create_bucket(bucket).await.map_err(|error| Failure::of("catalog", error))?;
    }
    let parts =
        workers::Parts { config: &config, catalog: &catalog, fleet: &fleet, identity: &identity, ground: &ground };
    let runner = open_runner(&parts)?;
    let observer = ground.with_registry(|registry| {
        let names = || fleet.backends().map(|backend| backend.name().clone());
        runner.register(registry, names());
        ground.intent_metrics.register(registry, names());
        Observer::new(RequestMetrics::register(registry), Arc::clone(&ground.entropy), Arc::clone(&ground.audit))
    });
    let stale_timeout = config.cleanup.multipart_stale_timeout;
    let tally = Arc::new(Tally::new(Arc::clone(&catalog), Arc::clone(&ground.clock), stale_timeout));
    let shown = (Arc::clone(&catalog), Arc::clone(&tally));
    let gauges = ground.with_registry(|registry| CatalogGauges::register(registry, shown));
    let controls = Arc::new(Controls {
        runner: Arc::clone(&runner),
        identity: Arc::clone(&identity),
        catalog: Arc::clone(&catalog),
        tally,
        fleet: Arc::clone(&fleet),
        office: queues::open_office(&catalog, &fleet, &identity, &ground),
        verifier: control::verifier(&catalog, &fleet, &identity),
        instance: ground.instance,
    });
    let router = admin::router(AdminParts {
        token: AdminToken::new(config.admin.token.as_deref().unwrap_or_default()),
        readiness: controls.clone(),
        metrics: MetricsPage { registry: Arc::clone(&ground.registry), refresh: Arc::new(gauges) },
        workers: controls.clone(),
        backends: controls.clone(),
        queues: controls.clone(),
        status: controls.clone(),
        verify: controls,
        log_level: Arc::new(levels),
        audit: Arc::clone(&ground.audit),
        entropy: Arc::clone(&ground.entropy),
    });
    let keys = SharedKeys::new(config.access_keys.iter().cloned().collect::<Keys>());
    let options = S3Options {
        region: config.server.region.clone(),
        domain: config.server.domain.clone(),
        max_concurrent_requests: config.server.max_concurrent_requests,
        budget: Arc::clone(&ground.budget),
    };
    let door = s3::service(Arc::new(engine.clone()), keys, options, observer);

    greet(&config, first_start, (&s3_socket, &admin_socket), data);
    let (stopping, stopped) = watch::channel(false);
    let upkeep = tokio::spawn(upkeep(engine.clone(), Arc::clone(&identity), hang_ups));
    let workers = tokio::spawn(runner.serve(stopped.clone()));
    let s3 = tokio::spawn(listener::serve(s3_socket, door, told(stopped.clone()), DRAIN_MAX));
    let admin = tokio::spawn(listener::serve(admin_socket, listener::router_service(router), told(stopped), DRAIN_MAX));
    stop.asked().await;
    tracing::info!("stopping: requests in flight are finished first");
    stopping.send_replace(true);
    for task in [s3, admin, workers] {
        task.await.map_err(|error| Failure::of("stopping", error))?;
    }
    if tokio::time::timeout(DRAIN_MAX, engine.tasks().drained()).await.is_err() {
        tracing::warn!(tasks = engine.tasks().count(), "work left to the next start");
    }
    upkeep.abort();
    ground.audit.close();
    tracing::info!("stopped");
    Ok(())
}

/// What goes on beside requests and workers, for as long as the process lives.
async fn upkeep(engine: Engine, identity: Arc<Identity>, hang_ups: Signal) {
    tokio::join!(engine.keep_leases(), attach_until_all(&identity), ignore_hang_ups(hang_ups));
}

async fn attach_until_all(identity: &Identity) {
    while !identity.attach().await {
        tokio::time::sleep(ATTACH_INTERVAL).await;
    }
}

/// A hang-up does not end the process; what it would reload is read at start.
async fn ignore_hang_ups(mut hang_ups: Signal) {
    while hang_ups.recv().await.is_some() {
        tracing::warn!("settings are read at start: restart to change them");
    }
}

async fn told(mut stopped: watch::Receiver<bool>) {
    // A sender that went away is a stop, too.
    stopped.wait_for(|stop| *stop).await.map(drop).unwrap_or_default();
}

async fn bind(address: std::net::SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| Failure::of(&format!("cannot listen on {address}"), error))
}

async fn open_catalog(database: &Database, ground: &Ground) -> Result<Arc<Catalog>, Failure> {
    match database {
        Database::Sqlite(path) => open_sqlite(path, ground).await,
        Database::Postgres { url, connections, .. } => open_postgres(url, *connections).await,
    }
}

async fn open_sqlite(path: &Path, ground: &Ground) -> Result<Arc<Catalog>, Failure> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| Failure::of(&folder.display().to_string(), error))?;
    }
    let options = SqliteOptions { path: path.to_owned(), mode: Mode::Threaded, clock: Arc::clone(&ground.clock) };
    let opened = Sqlite::open(&options);
    let driver = opened.map_err(|error| Failure::of(&format!("catalog {}", path.display()), error))?;
    let catalog = Arc::new(Catalog::new(Arc::new(driver)));
    // One process owns this file: whoever held leases and claims before is dead.
    catalog.take_over().await.map_err(|error| Failure::of("catalog", error))?;
    Ok(catalog)
}

fn postgres_options(url: &str, connections: usize) -> PostgresOptions {
    PostgresOptions { url: url.to_owned(), connections, wait_max: CATALOG_WAIT_MAX, schema: None, clock: None }
}

async fn open_postgres(url: &str, connections: usize) -> Result<Arc<Catalog>, Failure> {
    let options = postgres_options(url, connections);
    let driver = Postgres::open(&options).await.map_err(|error| Failure::of("catalog", error))?;
    Ok(Arc::new(Catalog::new(Arc::new(driver))))
}

async fn open_fleet(config: &Config, catalog: &Catalog, ground: &Ground) -> Result<Arc<Fleet>, Failure> {
    let around = Surroundings {
        clock: Arc::clone(&ground.clock),
        entropy: Arc::clone(&ground.entropy),
        meter: Arc::new(ground.with_registry(BackendMeter::register)),
    };
    Ok(Arc::new(fleet::open(&config.backends, catalog, &around).await?))
}

async fn open_identity(
    config: &Config,
    catalog: &Arc<Catalog>,
    fleet: &Arc<Fleet>,
    ground: &Ground,
) -> Result<Arc<Identity>, Failure> {
    let fresh = ground.ids.fresh().as_simple().to_string();
    let cluster = catalog.cluster_id(&fresh).await.map_err(|error| Failure::of("catalog", error))?;
    Ok(Arc::new(Identity::new(IdentityParts {
        identities: catalog.clone(),
        fleet: Arc::clone(fleet),
        ids: ground.ids.clone(),
        clock: Arc::clone(&ground.clock),
        cluster,
        alarm: ground.audit.clone(),
        max_age: fleet::identity_ages(&config.backends),
    })))
}

fn open_engine(config: &Config, catalog: &Arc<Catalog>, fleet: &Arc<Fleet>, ground: &Ground) -> Engine {
    Engine::new(EngineParts {
        catalog: Arc::clone(catalog),
        fleet: Arc::clone(fleet),
        ids: ground.ids.clone(),
        clock: Arc::clone(&ground.clock),
        instance: ground.instance,
        settings: Settings {
            lease: config.intents.min_age,
            late_write_window: config.intents.late_write_window,
            object_bytes_max: config.server.object_bytes_max,
            announce: config.intents.enabled,
            recovery: config.intents.recovery,
        },
        configured: Shared::new(config.buckets.clone()),
        cleanup_bell: Arc::clone(&ground.cleanup_bell),
        metrics: ground.intent_metrics.clone(),
        alarm: ground.audit.clone(),
    })
}

fn open_runner(parts: &workers::Parts<'_>) -> Result<Arc<Runner>, Failure> {
    let workers::Parts { config, catalog, ground, .. } = *parts;
    let runner = Runner::new(RunnerParts {
        workers: workers::all(parts),
        runs: Arc::clone(catalog) as _,
        locks: open_locks(&config.database, ground)?,
        budget: Arc::clone(&ground.budget),
        observer: Arc::clone(&ground.audit) as _,
        clock: Arc::clone(&ground.clock),
        entropy: Arc::clone(&ground.entropy),
        instance: ground.instance,
        drain_max: DRAIN_MAX,
    });
    Ok(Arc::new(runner))
}

fn open_locks(database: &Database, ground: &Ground) -> Result<Arc<dyn Locks>, Failure> {
    match database {
        Database::Sqlite(_) => Ok(Arc::new(ProcessLocks::new(ground.instance))),
        Database::Postgres { url, connections, lock_timeout } => {
            let options = postgres_options(url, *connections);
            let locks = PostgresLocks::new(&options, ground.instance, *lock_timeout);
            Ok(Arc::new(locks.map_err(|error| Failure::of("catalog", error))?))
        }
    }
}

/// Fills in the key pair and the token that the configuration leaves out; says whether it did.
fn complete_credentials(
    config: &mut Config,
    data: &Path,
    entropy: &dyn Entropy,
) -> Result<Option<Credentials>, Failure> {
    if !config.access_keys.is_empty() && config.admin.token.is_some() {
        return Ok(None);
    }
    std::fs::create_dir_all(data).map_err(|error| Failure::of(&data.display().to_string(), error))?;
    let made = Credentials::load_or_create(data, entropy)?;
    config.admin.token.get_or_insert_with(|| made.admin_token.clone());
    if config.access_keys.is_empty() {
        config.access_keys.push(AccessKey {
            access_key_id: made.access_key_id.clone(),
            secret: made.secret_access_key.clone(),
            buckets: Vec::new(),
            access: Access::Admin,
        });
    }
    Ok(Some(made))
}

/// Tells people how to connect.
fn greet(config: &Config, made: Option<Credentials>, sockets: (&TcpListener, &TcpListener), data: &Path) {
    let address = |socket: &TcpListener, configured| socket.local_addr().unwrap_or(configured);
    let s3 = address(sockets.0, config.server.listen);
    let admin = address(sockets.1, config.admin.listen);
    println!("s3o serves S3 on http://{s3} and its admin API on http://{admin}");
    if let Some(made) = made {
        let kept = Credentials::path(data);
        println!("\n  export AWS_ACCESS_KEY_ID={}", made.access_key_id);
        println!("  export AWS_SECRET_ACCESS_KEY={}", made.secret_access_key);
        println!("  export AWS_ENDPOINT_URL=http://{s3} AWS_REGION={}", config.server.region);
        println!("  aws s3 mb s3://photos && aws s3 ls");
        println!("\n  S3O_ADMIN_URL=http://{admin} S3O_ADMIN_TOKEN={}", made.admin_token);
        println!("\nkept in {} for the next start", kept.display());
    }
}
