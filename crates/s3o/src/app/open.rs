//! Opens the parts of the server as configured.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::Fleet;
use s3o_cache::{Cache, CacheParts, CacheSettings, Redis, Tier};
use s3o_catalog::{
    Catalog, Error as CatalogError, Locks, Mode, Postgres, PostgresLocks, PostgresOptions, ProcessLocks, Sqlite,
    SqliteOptions,
};
use s3o_engine::{Engine, EngineParts, Settings};
use s3o_server::admin::{Stats, report_damage};
use s3o_workers::{
    ClockGuard, ClockGuardParts, IdentityParts, IdentitySettings, IdentityWorker, Runner, RunnerParts, UsageLedger,
};

use super::DRAIN_MAX;
use super::context::AppContext;
use super::os::SystemKernelClock;
use super::rollback::DatabaseFiles;
use super::usage;
use super::workers::{self, WorkerParts};
use crate::backend_meter::BackendMeter;
use crate::cli::CommandFailure;
use crate::config::{Config, Database, SharedCache};
use crate::fleet::{self, FleetContext};

/// The start does not raise a mark that another instance confirmed more recently.
const RAISE_AGE: Duration = Duration::from_mins(5);

/// How long instances that share a catalog have to record what they see of a backend before it can be accepted.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// How long a request waits for a connection to the catalog.
const CATALOG_WAIT_MAX: Duration = Duration::from_secs(5);

/// How long the start waits for the integrity check of the catalog; a longer one continues in the background.
const CHECK_WAIT_MAX: Duration = Duration::from_secs(2);

const RESTORE_SQLITE: &str = "stop s3o, keep a copy of the catalog's files, restore the newest backup with \
     `s3o catalog restore FILE`, and start again; nothing is deleted until then";
const RESTORE_POSTGRES: &str = "stop every instance, check the database with `s3o verify --catalog` or \
     pg_amcheck, rebuild its indexes with REINDEX or restore a backup, and start again; nothing is deleted until then";

/// Tells operators how to restore a damaged catalog.
pub(super) const fn restore_hint(database: &Database) -> &'static str {
    match database {
        Database::Sqlite(_) => RESTORE_SQLITE,
        Database::Postgres { .. } => RESTORE_POSTGRES,
    }
}

pub(super) async fn catalog(database: &Database, context: &AppContext) -> Result<Arc<Catalog>, CommandFailure> {
    let catalog = match database {
        Database::Sqlite(path) => open_sqlite(path, context).await?,
        Database::Postgres { url, connections, .. } => open_postgres(url, *connections).await?,
    };
    report_damage(&catalog, &context.audit, restore_hint(database));
    Ok(catalog)
}

async fn open_sqlite(path: &Path, context: &AppContext) -> Result<Arc<Catalog>, CommandFailure> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| CommandFailure::of(&folder.display().to_string(), error))?;
    }
    let options = SqliteOptions { path: path.to_owned(), mode: Mode::Threaded, clock: Arc::clone(&context.clock) };
    let new_files = (!path.exists()).then(|| DatabaseFiles::new(path.to_owned()));
    let driver = Sqlite::open(&options).map_err(|error| {
        // The files of a database in use belong to another process.
        if let Some(files) = new_files.filter(|_| !matches!(error, CatalogError::InUse(_))) {
            files.remove();
        }
        CommandFailure::of(&format!("catalog {}", path.display()), error)
    })?;
    let catalog = Arc::new(Catalog::new(Arc::new(driver)));
    check_integrity(&catalog).await;
    // One process owns this file, so every lease and claim belongs to a process that ended.
    if !catalog.condition().is_damaged() {
        catalog.take_over().await.map_err(|error| CommandFailure::of("catalog", error))?;
    }
    Ok(catalog)
}

async fn check_integrity(catalog: &Arc<Catalog>) {
    let checked = Arc::clone(catalog);
    catalog.condition().begin_check();
    let check = tokio::spawn(async move { checked.check().await });
    if tokio::time::timeout(CHECK_WAIT_MAX, check).await.is_err() {
        tracing::info!("catalog integrity check continues in the background");
    }
}

fn postgres_options(url: &str, connections: usize) -> PostgresOptions {
    PostgresOptions { url: url.to_owned(), connections, wait_max: CATALOG_WAIT_MAX, schema: None, clock: None }
}

async fn open_postgres(url: &str, connections: usize) -> Result<Arc<Catalog>, CommandFailure> {
    let options = postgres_options(url, connections);
    let driver = Postgres::open(&options).await.map_err(|error| CommandFailure::of("catalog", error))?;
    Ok(Arc::new(Catalog::new(Arc::new(driver))))
}

/// The backends, and the ledger of their usage.
pub(super) async fn fleet(
    config: &Config,
    catalog: &Arc<Catalog>,
    context: &AppContext,
) -> Result<(Arc<Fleet>, Arc<UsageLedger>), CommandFailure> {
    let fleet_context = FleetContext {
        clock: Arc::clone(&context.clock),
        entropy: Arc::clone(&context.entropy),
        meter: Arc::new(context.with_registry(BackendMeter::register)),
        store_time: Arc::clone(&context.store_time),
        circuit: context.circuit.clone(),
        usage: context.usage.clone(),
    };
    let fleet = Arc::new(fleet::open(config, catalog, &fleet_context).await?);
    let usage = usage::open(config, catalog, &fleet, context).await?;
    Ok((fleet, usage))
}

pub(super) async fn identity(
    config: &Config,
    catalog: &Arc<Catalog>,
    fleet: &Arc<Fleet>,
    context: &AppContext,
) -> Result<Arc<IdentityWorker>, CommandFailure> {
    let cluster = cluster(catalog, context).await?;
    let is_shared = matches!(config.database, Database::Postgres { .. });
    Ok(Arc::new(IdentityWorker::new(IdentityParts {
        identities: catalog.clone(),
        records: catalog.clone(),
        fleet: Arc::clone(fleet),
        ids: context.ids.clone(),
        clock: Arc::clone(&context.clock),
        cluster,
        host: host(config),
        alarm: context.audit.clone(),
        settings: IdentitySettings {
            max_age: fleet::identity_ages(&config.backends),
            delete_delay: fleet::delete_delays(config),
            raise_age: if is_shared { RAISE_AGE } else { Duration::ZERO },
            answer_wait: if is_shared { ANSWER_WAIT } else { Duration::ZERO },
        },
    })))
}

/// Host name and port of this instance: the same after a restart, and different for each instance.
fn host(config: &Config) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "localhost".to_owned());
    format!("{}:{}", name.trim(), config.server.listen.port())
}

/// The cache; None if it is disabled. Redis is not connected yet.
pub(super) async fn cache(
    config: &Config,
    catalog: &Catalog,
    context: &AppContext,
) -> Result<Option<Arc<Cache>>, CommandFailure> {
    if !config.cache.enabled {
        return Ok(None);
    }
    let shared: Option<Arc<dyn Tier>> = match &config.cache.shared {
        SharedCache::None => None,
        SharedCache::Redis { url } => {
            let cluster = cluster(catalog, context).await?;
            let redis = Redis::new(url, &cluster).map_err(|error| CommandFailure::of("redis.url", error))?;
            Some(Arc::new(redis))
        }
    };
    let settings = CacheSettings {
        max_bytes: config.cache.max_bytes,
        object_bytes_max: config.cache.object_bytes_max,
        ttl: config.cache.ttl,
    };
    let cache = Arc::new(Cache::new(CacheParts { settings, shared, clock: Arc::clone(&context.clock) }));
    context.with_registry(|registry| cache.register(registry));
    Ok(Some(cache))
}

/// The ID that all instances of this catalog share; the first start generates it.
pub(super) async fn cluster(catalog: &Catalog, context: &AppContext) -> Result<String, CommandFailure> {
    let fresh = context.ids.fresh().as_simple().to_string();
    catalog.cluster_id(&fresh).await.map_err(|error| CommandFailure::of("catalog", error))
}

pub(super) fn engine(
    config: &Config,
    catalog: &Arc<Catalog>,
    fleet: &Arc<Fleet>,
    cache: Option<Arc<Cache>>,
    context: &AppContext,
) -> Engine {
    Engine::new(EngineParts {
        catalog: Arc::clone(catalog),
        fleet: Arc::clone(fleet),
        ids: context.ids.clone(),
        clock: Arc::clone(&context.clock),
        instance: context.instance,
        settings: engine_settings(config),
        configured: s3o_model::shared::Shared::new(config.buckets.clone()),
        configured_rules: context.lifecycle_rules.shown(),
        cleanup_wakeup: Arc::clone(&context.cleanup_wakeup),
        metrics: context.intent_metrics.clone(),
        alarm: context.audit.clone(),
        cache,
    })
}

/// A guard of this process's wall clock, which a SQLite catalog uses; None for PostgreSQL, which uses its own.
pub(super) async fn clock_guard(
    database: &Database,
    catalog: &Arc<Catalog>,
    context: &AppContext,
) -> Option<Arc<ClockGuard>> {
    if matches!(database, Database::Postgres { .. }) {
        return None;
    }
    let guard = ClockGuard::new(ClockGuardParts {
        clock: Arc::clone(&context.clock),
        kernel: Arc::new(SystemKernelClock),
        store: Arc::clone(&context.store_time),
        notes: catalog.clone(),
        alarm: context.audit.clone(),
    });
    if let Err(error) = guard.observe().await {
        tracing::warn!(%error, "cannot read or record the newest time in the catalog, retrying");
    }
    Some(Arc::new(guard))
}

/// Creates the configured buckets and stores the factors of all buckets.
pub(super) async fn create_buckets(config: &Config, catalog: &Catalog) -> Result<(), CommandFailure> {
    let failed = |error| CommandFailure::of("catalog", error);
    // A damaged catalog is served as it is.
    if catalog.condition().is_damaged() {
        return Ok(());
    }
    for bucket in config.buckets.names() {
        catalog.create_bucket(bucket, None).await.map_err(failed)?;
    }
    let factors: Vec<_> = config.buckets.names().map(|name| (name, config.buckets.of(name).factor)).collect();
    catalog.set_factors(config.buckets.default_factor(), &factors).await.map(drop).map_err(failed)
}

pub(super) fn engine_settings(config: &Config) -> Settings {
    Settings {
        lease: config.intents.min_age,
        late_write_window: config.intents.late_write_window,
        object_bytes_max: config.server.object_bytes_max,
        announce: config.intents.enabled,
        recovery: config.intents.recovery,
        strategy: config.strategy,
        write_copies: config.replication.write_copies,
        write_copies_min: config.replication.write_copies_min,
        first_byte_timeout: config.circuit_breaker.first_byte_timeout,
    }
}

pub(super) fn stats(config: &Config, catalog: &Arc<Catalog>, context: &AppContext) -> Arc<Stats> {
    let stale_timeout = config.cleanup.multipart_stale_timeout;
    Arc::new(Stats::new(Arc::clone(catalog), Arc::clone(&context.clock), stale_timeout))
}

pub(super) fn runner(parts: &WorkerParts<'_>) -> Result<Arc<Runner>, CommandFailure> {
    let WorkerParts { config, catalog, context, .. } = *parts;
    let runner = Runner::new(RunnerParts {
        workers: workers::all(parts),
        runs: Arc::clone(catalog),
        locks: open_locks(&config.database, context)?,
        budget: Arc::clone(&context.budget),
        observer: Arc::clone(&context.audit) as _,
        clock: Arc::clone(&context.clock),
        clock_guard: context.clock_guard.clone(),
        entropy: Arc::clone(&context.entropy),
        instance: context.instance,
        drain_max: DRAIN_MAX,
    });
    Ok(Arc::new(runner))
}

fn open_locks(database: &Database, context: &AppContext) -> Result<Arc<dyn Locks>, CommandFailure> {
    match database {
        Database::Sqlite(_) => Ok(Arc::new(ProcessLocks::new(context.instance))),
        Database::Postgres { url, connections, lock_timeout } => {
            let options = postgres_options(url, *connections);
            let locks = PostgresLocks::new(&options, context.instance, *lock_timeout);
            Ok(Arc::new(locks.map_err(|error| CommandFailure::of("catalog", error))?))
        }
    }
}
