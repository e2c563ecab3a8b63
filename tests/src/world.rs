//! What outlives a crash: the catalog, the bytes on the backends, the clock.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use s3o_backend::layers::Flaky;
use s3o_backend::{Memory, SharedBackend};
use s3o_cache::CacheSettings;
use s3o_catalog::{Driver, Error, Mode, Sqlite, SqliteOptions};
use s3o_engine::OrphanAlarm;
use s3o_model::bucket::{BucketSettings, ConfiguredBuckets};
use s3o_model::clock::{Clock, ManualClock, Timestamp};
use s3o_model::entropy::Entropy;
use s3o_model::names::{BackendName, BucketName};
use s3o_model::shared::Shared;
use tempfile::TempDir;

use crate::database::StillDatabase;

/// After how long a removal is begun again, where a world does not say otherwise.
pub const STUCK_AFTER: Duration = Duration::from_hours(2);
/// How many rows cleanup claims at a time, where a world does not say otherwise.
pub const CLEANUP_BATCH: usize = 1000;

/// What outlives a crash.
pub struct World {
    /// The one clock.
    pub clock: Arc<dyn Clock>,
    /// The one source of randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Where bytes lie, in the order of the fleet.
    pub sites: Vec<Site>,
    /// How buckets are configured.
    pub configured: Shared<ConfiguredBuckets>,
    /// After how long a removal is begun again.
    pub stuck_after: Duration,
    /// How many rows cleanup claims at a time.
    pub cleanup_batch: usize,
    /// How bodies are kept at hand, if they are.
    pub cache: Option<CacheSettings>,
    /// Is informed of bytes that no row may name.
    pub alarm: Arc<dyn OrphanAlarm>,
    catalog: Place,
}

/// Where the catalog is.
enum Place {
    Folder(TempDir),
    Database(StillDatabase),
}

/// One backend in memory behind the layer that makes it fail.
#[derive(Clone)]
pub struct Site {
    /// The books' limit.
    pub limit_bytes: Option<u64>,
    /// What holds the bytes.
    pub memory: Arc<Memory>,
    /// What makes it fail.
    pub flaky: Arc<Flaky>,
}

impl Site {
    /// An empty backend.
    #[must_use]
    pub fn new(name: &str, put_bytes_max: u64, limit_bytes: Option<u64>, clock: &Arc<dyn Clock>) -> Self {
        let name: BackendName = name.parse().expect("a name");
        let memory = Arc::new(Memory::new(name).with_put_bytes_max(put_bytes_max));
        let flaky = Arc::new(Flaky::new(memory.clone()).with_clock(clock.clone()));
        Self { limit_bytes, memory, flaky }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> BackendName {
        s3o_backend::Backend::name(self.memory.as_ref()).clone()
    }
}

impl World {
    /// A world with an empty catalog.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>, sites: Vec<Site>) -> Self {
        let folder = scratch();
        std::fs::write(folder.path().join("catalog.db"), empty_catalog()).expect("a file");
        let (configured, stuck_after, cleanup_batch) = (Shared::default(), STUCK_AFTER, CLEANUP_BATCH);
        let alarm = Arc::new(());
        Self {
            clock,
            entropy,
            sites,
            configured,
            stuck_after,
            cleanup_batch,
            cache: None,
            alarm,
            catalog: Place::Folder(folder),
        }
    }

    /// Has a bucket keep equal content once, or not.
    pub fn keep_once(&self, bucket: BucketName, dedup: bool) {
        let settings = BucketSettings { dedup, ..BucketSettings::default() };
        self.configured.replace([(bucket, settings)].into_iter().collect());
    }

    /// The same world, with its catalog in this database, which is emptied.
    #[must_use]
    pub fn on(self, database: Option<&StillDatabase>) -> Self {
        match database {
            Some(database) => Self { catalog: Place::Database(database.clone().emptied()), ..self },
            None => self,
        }
    }

    /// Opens the catalog as a fresh process does.
    pub fn open_catalog(&self, mode: Mode) -> Result<Arc<dyn Driver>, Error> {
        let folder = match &self.catalog {
            Place::Database(database) => return database.open(self.clock.clone()),
            Place::Folder(folder) => folder,
        };
        let path = folder.path().join("catalog.db");
        Ok(Arc::new(Sqlite::open(&SqliteOptions { path, mode, clock: self.clock.clone() })?))
    }

    /// The backends as a process sees them without anything in between.
    #[must_use]
    pub fn backends(&self) -> Vec<SharedBackend> {
        self.sites.iter().map(|site| site.flaky.clone() as SharedBackend).collect()
    }
}

/// A folder in memory where there is such a place: thousands of catalogs are made, and none
/// outlives its test.
fn scratch() -> TempDir {
    let shared_memory = std::path::Path::new("/dev/shm");
    tempfile::tempdir_in(shared_memory).or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// The file of a catalog without rows; making one costs more than all that some tests do with it.
fn empty_catalog() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| {
        let folder = scratch();
        let path = folder.path().join("catalog.db");
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(0)));
        drop(Sqlite::open(&SqliteOptions { path: path.clone(), mode: Mode::Inline, clock }).expect("a catalog"));
        std::fs::read(path).expect("a closed catalog is one file")
    })
}
