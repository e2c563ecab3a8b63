//! Opening what serving needs, as configured.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::Fleet;
use s3o_cache::{Cache, CacheParts, CacheSettings, Redis, Tier};
use s3o_catalog::{
    Catalog, Error as CatalogError, Identities as _, Intents as _, Locks, Mode, Postgres, PostgresLocks,
    PostgresOptions, ProcessLocks, Sqlite, SqliteOptions,
};
use s3o_engine::{Engine, EngineParts, Settings};
use s3o_workers::{
    ClockGuard, ClockGuardParts, Identity, IdentityParts, IdentitySettings, Prober, Runner, RunnerParts,
};

use super::kernel_clock::ThisKernel;
use super::undo::DatabaseFiles;
use super::{DRAIN_MAX, Ground, workers};
use crate::cli::Failure;
use crate::config::{Config, Database, Shared};
use crate::fleet::{self, Surroundings};
use crate::gauges::health::HealthGauges;
use crate::gauges::{BackendMeter, CatalogGauges};
use crate::tally::Tally;

/// A start raises no mark that another instance confirmed more recently.
const RAISE_AGE: Duration = Duration::from_mins(5);

/// How long instances that share a catalog have to record what they see of a backend before it can be accepted.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// How long a request waits for a connection to the catalog.
const CATALOG_WAIT_MAX: Duration = Duration::from_secs(5);

pub(super) async fn catalog(database: &Database, ground: &Ground) -> Result<Arc<Catalog>, Failure> {
    let catalog = match database {
        Database::Sqlite(path) => open_sqlite(path, ground).await?,
        Database::Postgres { url, connections, .. } => open_postgres(url, *connections).await?,
    };
    super::catalog::report_damage(&catalog, &ground.audit, super::catalog::restore_of(database));
    Ok(catalog)
}

async fn open_sqlite(path: &Path, ground: &Ground) -> Result<Arc<Catalog>, Failure> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| Failure::of(&folder.display().to_string(), error))?;
    }
    let options = SqliteOptions { path: path.to_owned(), mode: Mode::Threaded, clock: Arc::clone(&ground.clock) };
    let new_files = (!path.exists()).then(|| DatabaseFiles::new(path.to_owned()));
    let driver = Sqlite::open(&options).map_err(|error| {
        // The files of a database that another process holds are not this one's.
        if let Some(files) = new_files.filter(|_| !matches!(error, CatalogError::InUse(_))) {
            files.remove();
        }
        Failure::of(&format!("catalog {}", path.display()), error)
    })?;
    let catalog = Arc::new(Catalog::new(Arc::new(driver)));
    super::catalog::check(&catalog).await;
    // One process owns this file: whoever held leases and claims before is dead.
    if !catalog.condition().is_damaged() {
        catalog.take_over().await.map_err(|error| Failure::of("catalog", error))?;
    }
    watch_clock(&catalog, ground).await;
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

pub(super) async fn fleet(config: &Config, catalog: &Catalog, ground: &Ground) -> Result<Arc<Fleet>, Failure> {
    let around = Surroundings {
        clock: Arc::clone(&ground.clock),
        entropy: Arc::clone(&ground.entropy),
        meter: Arc::new(ground.with_registry(BackendMeter::register)),
        store_time: Arc::clone(&ground.store_time),
    };
    Ok(Arc::new(fleet::open(&config.backends, catalog, &around).await?))
}

pub(super) async fn identity(
    config: &Config,
    catalog: &Arc<Catalog>,
    fleet: &Arc<Fleet>,
    ground: &Ground,
) -> Result<Arc<Identity>, Failure> {
    let cluster = cluster(catalog, ground).await?;
    let is_shared = matches!(config.database, Database::Postgres { .. });
    Ok(Arc::new(Identity::new(IdentityParts {
        identities: catalog.clone(),
        records: catalog.clone(),
        fleet: Arc::clone(fleet),
        ids: ground.ids.clone(),
        clock: Arc::clone(&ground.clock),
        cluster,
        host: host(config),
        alarm: ground.audit.clone(),
        settings: IdentitySettings {
            max_age: fleet::identity_ages(&config.backends),
            delete_delay: fleet::delete_delays(config),
            raise_age: if is_shared { RAISE_AGE } else { Duration::ZERO },
            answer_wait: if is_shared { ANSWER_WAIT } else { Duration::ZERO },
        },
    })))
}

/// The gauges of the catalog and of the backends' health.
pub(super) fn gauges(
    catalog: &Arc<Catalog>,
    tally: &Arc<Tally>,
    fleet: &Arc<Fleet>,
    ground: &Ground,
) -> HealthGauges<CatalogGauges> {
    ground.with_registry(|registry| {
        let of_catalog = CatalogGauges::register(registry, (Arc::clone(catalog), Arc::clone(tally)));
        HealthGauges::register(registry, (Arc::clone(fleet), Arc::clone(&ground.clock)), of_catalog)
    })
}

pub(super) fn prober(config: &Config, fleet: &Arc<Fleet>, identity: &Arc<Identity>, ground: &Ground) -> Prober {
    Prober {
        fleet: Arc::clone(fleet),
        identity: Arc::clone(identity),
        clock: Arc::clone(&ground.clock),
        intervals: s3o_model::shared::Shared::new(fleet::probe_intervals(config)),
    }
}

/// The host and the port on which this instance listens: the same after a restart, and different for each instance.
fn host(config: &Config) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_else(|_| "localhost".to_owned());
    format!("{}:{}", name.trim(), config.server.listen.port())
}

/// The cache, where one is wanted. Nothing is connected yet.
pub(super) async fn cache(config: &Config, catalog: &Catalog, ground: &Ground) -> Result<Option<Arc<Cache>>, Failure> {
    if !config.cache.enabled {
        return Ok(None);
    }
    let shared: Option<Arc<dyn Tier>> = match &config.cache.shared {
        Shared::None => None,
        Shared::Redis { url } => {
            let cluster = cluster(catalog, ground).await?;
            let redis = Redis::new(url, &cluster).map_err(|error| Failure::of("redis.url", error))?;
            Some(Arc::new(redis))
        }
    };
    let settings = CacheSettings {
        max_bytes: config.cache.max_bytes,
        object_bytes_max: config.cache.object_bytes_max,
        ttl: config.cache.ttl,
    };
    let cache = Arc::new(Cache::new(CacheParts { settings, shared, clock: Arc::clone(&ground.clock) }));
    ground.with_registry(|registry| cache.register(registry));
    Ok(Some(cache))
}

/// The name of all instances that share this catalog.
async fn cluster(catalog: &Catalog, ground: &Ground) -> Result<String, Failure> {
    let fresh = ground.ids.fresh().as_simple().to_string();
    catalog.cluster_id(&fresh).await.map_err(|error| Failure::of("catalog", error))
}

pub(super) fn engine(
    config: &Config,
    catalog: &Arc<Catalog>,
    fleet: &Arc<Fleet>,
    cache: Option<Arc<Cache>>,
    ground: &Ground,
) -> Engine {
    Engine::new(EngineParts {
        catalog: Arc::clone(catalog),
        fleet: Arc::clone(fleet),
        ids: ground.ids.clone(),
        clock: Arc::clone(&ground.clock),
        instance: ground.instance,
        settings: engine_settings(config),
        configured: s3o_model::shared::Shared::new(config.buckets.clone()),
        configured_rules: ground.lifecycle_rules.shown(),
        cleanup_bell: Arc::clone(&ground.cleanup_bell),
        metrics: ground.intent_metrics.clone(),
        alarm: ground.audit.clone(),
        cache,
    })
}

/// Begins to watch the clock of this process, which is the one that counts.
async fn watch_clock(catalog: &Arc<Catalog>, ground: &Ground) {
    let guard = ground.clock_guard.get_or_init(|| {
        Arc::new(ClockGuard::new(ClockGuardParts {
            clock: Arc::clone(&ground.clock),
            kernel: Arc::new(ThisKernel),
            store: Arc::clone(&ground.store_time),
            notes: catalog.clone(),
            alarm: ground.audit.clone(),
        }))
    });
    if let Err(error) = guard.observe().await {
        tracing::warn!(%error, "newest time in the catalog not read or recorded");
    }
}

pub(super) fn engine_settings(config: &Config) -> Settings {
    Settings {
        lease: config.intents.min_age,
        late_write_window: config.intents.late_write_window,
        object_bytes_max: config.server.object_bytes_max,
        announce: config.intents.enabled,
        recovery: config.intents.recovery,
    }
}

pub(super) fn runner(parts: &workers::Parts<'_>) -> Result<Arc<Runner>, Failure> {
    let workers::Parts { config, catalog, ground, .. } = *parts;
    let runner = Runner::new(RunnerParts {
        workers: workers::all(parts),
        runs: Arc::clone(catalog) as _,
        locks: open_locks(&config.database, ground)?,
        budget: Arc::clone(&ground.budget),
        observer: Arc::clone(&ground.audit) as _,
        clock: Arc::clone(&ground.clock),
        clock_guard: ground.clock_guard(),
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
