//! The state of a test store that survives a crash: catalog, backends, clock and settings. Every process that a test
//! starts over one [`Environment`] sees what the processes before it left.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use s3o_backend::layers::Flaky;
use s3o_backend::{Memory, SharedBackend};
use s3o_cache::CacheSettings;
use s3o_catalog::{Driver, Error, Mode, Sqlite, SqliteOptions};
use s3o_engine::OrphanAlarm;
use s3o_model::bucket::{BucketSettings, ConfiguredBuckets};
use s3o_model::clock::{Clock, ManualClock, Timestamp};
use s3o_model::entropy::{Entropy, SeededEntropy};
use s3o_model::names::BackendName;
use s3o_model::placement::Strategy;
use s3o_model::rebalance::RebalanceRules;
use s3o_model::shared::Shared;
use s3o_workers::ReconcileSettings;
use tempfile::TempDir;

use crate::database::BlockingDatabase;
use crate::harness::bucket;

/// Default age at which the watchdog resets an expiry claim.
pub const STUCK_AFTER: Duration = Duration::from_hours(2);
/// Default for how long a write whose answer was lost may still take effect on a backend.
pub const LATE: Duration = Duration::from_hours(1);

/// Settings that every process of an environment is started with.
#[derive(Debug, Clone, Copy)]
pub struct ProcessSettings {
    /// False is direct mode: no intent is committed before the bytes are sent.
    pub announce: bool,
    /// How long a write whose answer was lost may still take effect on a backend.
    pub late_write_window: Duration,
    /// Maximum age of an identity check before deletes; None makes the backends local, which are checked every time.
    pub identity_age_max: Option<Duration>,
    /// Age at which the watchdog resets an expiry claim.
    pub stuck_after: Duration,
    /// Rows that cleanup claims at a time.
    pub cleanup_batch: usize,
    /// Number of copies that a write stores, and factor of all buckets.
    pub copies: usize,
    /// Number of copies below which a write is refused.
    pub copies_min: usize,
    /// How the rebalancer distributes copies.
    pub rebalance: RebalanceRules,
    /// When passes of reconcile begin, and what confirms a finding.
    pub reconcile: ReconcileSettings,
}

/// Rules under which no copy is ever moved.
pub const NO_REBALANCE: RebalanceRules = RebalanceRules { strategy: Strategy::Spread, threshold: 1.0 };

/// No pass begins by itself. Two passes of a test confirm a finding if an hour is between them.
pub const ON_REQUEST: ReconcileSettings = ReconcileSettings {
    enabled: false,
    interval: Duration::from_hours(24),
    grace: Duration::from_hours(1),
    max_delete_fraction: 0.01,
};

impl Default for ProcessSettings {
    fn default() -> Self {
        Self {
            announce: true,
            late_write_window: LATE,
            identity_age_max: None,
            stuck_after: STUCK_AFTER,
            cleanup_batch: 1000,
            copies: 1,
            copies_min: 1,
            rebalance: NO_REBALANCE,
            reconcile: ON_REQUEST,
        }
    }
}

/// Catalog, backends, clock and settings; outlives the processes that are started over it.
pub struct Environment<C = ManualClock> {
    /// The clock of the catalog, the backends and every process.
    pub clock: Arc<C>,
    /// Source of identifiers and jitter; seeded where a run must be repeatable.
    pub entropy: Arc<dyn Entropy>,
    /// In the order of the fleet.
    pub backends: Vec<TestBackend>,
    /// Bucket settings from the configuration file.
    pub configured: Shared<ConfiguredBuckets>,
    /// Settings of the engine and the workers.
    pub settings: ProcessSettings,
    /// None starts processes without a cache.
    pub cache: Option<CacheSettings>,
    /// Is notified of bytes that could not be queued for deletion.
    pub alarm: Arc<dyn OrphanAlarm>,
    catalog: CatalogLocation,
}

enum CatalogLocation {
    Folder(TempDir),
    Database(BlockingDatabase),
}

/// One backend in memory behind a layer that injects faults.
#[derive(Clone)]
pub struct TestBackend {
    /// Quota; None is unlimited.
    pub limit_bytes: Option<u64>,
    /// The stored bytes.
    pub memory: Arc<Memory>,
    /// Injects faults into calls to `memory`.
    pub flaky: Arc<Flaky>,
}

impl TestBackend {
    /// The name that the backend is configured under.
    #[must_use]
    pub fn name(&self) -> BackendName {
        s3o_backend::Backend::name(self.memory.as_ref()).clone()
    }
}

impl Environment {
    /// A manual clock, seeded entropy, a SQLite catalog and one backend that takes up to `put_bytes_max` in one call.
    #[must_use]
    pub fn new(put_bytes_max: u64) -> Self {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        Self::with_clock(clock, Arc::new(SeededEntropy::new(7))).with_backend("memory", put_bytes_max, None)
    }
}

impl<C: Clock + 'static> Environment<C> {
    /// An empty SQLite catalog and no backend yet.
    #[must_use]
    pub fn with_clock(clock: Arc<C>, entropy: Arc<dyn Entropy>) -> Self {
        let folder = temporary_folder();
        std::fs::write(folder.path().join("catalog.db"), empty_catalog()).expect("write the catalog file");
        Self {
            clock,
            entropy,
            backends: Vec::new(),
            configured: Shared::default(),
            settings: ProcessSettings::default(),
            cache: None,
            alarm: Arc::new(()),
            catalog: CatalogLocation::Folder(folder),
        }
    }

    /// Adds an empty backend at the end of the fleet.
    #[must_use]
    pub fn with_backend(mut self, name: &str, put_bytes_max: u64, limit_bytes: Option<u64>) -> Self {
        let name: BackendName = name.parse().expect("a valid backend name");
        let memory = Arc::new(Memory::new(name).with_put_bytes_max(put_bytes_max));
        let flaky = Arc::new(Flaky::new(memory.clone()).with_clock(self.clock.clone()));
        self.backends.push(TestBackend { limit_bytes, memory, flaky });
        self
    }

    /// Moves the catalog to this database, which is emptied; None keeps SQLite.
    #[must_use]
    pub fn on_database(self, database: Option<&BlockingDatabase>) -> Self {
        match database {
            Some(database) => Self { catalog: CatalogLocation::Database(database.clone().emptied()), ..self },
            None => self,
        }
    }

    /// Configures dedup for the one bucket.
    #[must_use]
    pub fn with_dedup(self, dedup: bool) -> Self {
        let settings = BucketSettings { dedup, factor: self.settings.copies, ..BucketSettings::default() };
        self.configured.replace([(bucket(), settings)].into_iter().collect());
        self
    }

    /// With more than one copy: adds two backends, and makes this number the factor of all buckets and the number of
    /// copies that a write stores. Keeps the other settings of the bucket.
    #[must_use]
    pub fn with_copies(mut self, copies: usize, put_bytes_max: u64) -> Self {
        if copies == 1 {
            return self;
        }
        self.settings.copies = copies;
        let settings = BucketSettings { factor: copies, ..self.configured.current().of(&bucket()) };
        self.configured.replace([(bucket(), settings)].into_iter().collect());
        self.with_backend("second", put_bytes_max, None).with_backend("third", put_bytes_max, None)
    }

    /// Replaces the receiver of orphan notifications.
    #[must_use]
    pub fn with_alarm(self, alarm: Arc<dyn OrphanAlarm>) -> Self {
        Self { alarm, ..self }
    }

    /// Starts processes with a cache.
    #[must_use]
    pub fn with_cache(self, cache: Option<CacheSettings>) -> Self {
        Self { cache, ..self }
    }

    /// Replaces the settings of the engine and the workers.
    #[must_use]
    pub fn with_settings(self, settings: ProcessSettings) -> Self {
        Self { settings, ..self }
    }

    /// Opens the catalog as a new process does.
    pub fn open_catalog(&self, mode: Mode) -> Result<Arc<dyn Driver>, Error> {
        let folder = match &self.catalog {
            CatalogLocation::Database(database) => return database.open(self.clock.clone()),
            CatalogLocation::Folder(folder) => folder,
        };
        let path = folder.path().join("catalog.db");
        Ok(Arc::new(Sqlite::open(&SqliteOptions { path, mode, clock: self.clock.clone() })?))
    }

    /// The backends with their fault layer, in the order of the fleet.
    #[must_use]
    pub fn shared_backends(&self) -> Vec<SharedBackend> {
        self.backends.iter().map(|backend| backend.flaky.clone() as SharedBackend).collect()
    }
}

/// A folder on tmpfs where there is one: tests create thousands of catalogs.
#[must_use]
pub fn temporary_folder() -> TempDir {
    let tmpfs = std::path::Path::new("/dev/shm");
    tempfile::tempdir_in(tmpfs).or_else(|_| tempfile::tempdir()).expect("create a folder")
}

/// The file of a migrated catalog without rows. Copying it is faster than running the migrations.
fn empty_catalog() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = temporary_folder();
        let path = folder.path().join("catalog.db");
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(0)));
        drop(Sqlite::open(&SqliteOptions { path: path.clone(), mode: Mode::Inline, clock }).expect("migrate"));
        std::fs::read(path).expect("a closed catalog is one file")
    })
}
