//! Configuration: parses and validates the file, or reports every error with its path. Settings of parts that are not
//! built yet are refused.

mod backends;
mod cache;
mod conflicts;
mod faults;
mod file;
mod read;
mod rebalance;
mod reconcile;
mod replication;
mod restart;
mod sections;
mod server;
pub mod units;
mod usage;
mod warnings;
mod workers;
mod yaml;

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use s3o_backend::s3::S3Options;
use s3o_model::bucket::ConfiguredBuckets;
use s3o_model::cleanup::Retries;
use s3o_model::names::BackendName;
use s3o_model::placement::Strategy;
use s3o_model::recovery::Recovery;
use s3o_model::usage::UsageLimits;
use s3o_server::s3::AccessKey;
use s3o_workers::ReconcileSettings;

pub use cache::{CacheConfig, RedisUrl, SharedCache};
pub use faults::Faults;
pub use rebalance::RebalanceConfig;
pub use restart::keep_until_restart;
pub use usage::UsageFlushConfig;
pub use workers::{CircuitBreakerConfig, ExpiryConfig, LifecycleConfig};

/// Default of `--data`. Paths that are not configured are below the data folder.
pub const DATA: &str = "./s3o-data";

/// Configuration file without `--config`, if it exists.
const DEFAULT_FILE: &str = "./s3o.yaml";

/// `./s3o.yaml` if it exists, also if it is not readable: the caller then reports the error. Prints that it is used.
pub fn default_file() -> Option<PathBuf> {
    let path = PathBuf::from(DEFAULT_FILE);
    let exists = path.symlink_metadata().is_ok();
    if exists {
        println!("using the configuration in {DEFAULT_FILE}");
    }
    exists.then_some(path)
}

/// All settings, validated.
#[derive(Debug, Clone)]
pub struct Config {
    /// Section `server`: the S3 listener.
    pub server: Server,
    /// Section `admin`: the listener of admin API, metrics and health.
    pub admin: AdminConfig,
    /// Section `database`: the catalog.
    pub database: Database,
    /// Access keys; if empty, the first start generates a key pair.
    pub access_keys: Vec<AccessKey>,
    /// Buckets that are created at start, with their settings.
    pub buckets: ConfiguredBuckets,
    /// Backends, in the order in which writes fill them.
    pub backends: Vec<BackendConfig>,
    /// Section `routing`: how backends are chosen.
    pub strategy: Strategy,
    /// Section `replication`: how many copies objects have.
    pub replication: ReplicationConfig,
    pub rebalance: RebalanceConfig,
    pub reconcile: ReconcileSettings,
    /// Section `circuit_breaker`.
    pub circuit_breaker: CircuitBreakerConfig,
    /// Section `write_path.pending_intents`.
    pub intents: IntentsConfig,
    /// Section `cleanup_queue`.
    pub cleanup: CleanupQueue,
    /// Section `lifecycle`.
    pub lifecycle: LifecycleConfig,
    /// Section `expiry`.
    pub expiry: ExpiryConfig,
    /// Sections of workers that have little more than an interval.
    pub maintenance: MaintenanceConfig,
    /// Section `usage_flush`.
    pub usage_flush: UsageFlushConfig,
    /// Sections `cache` and `redis`.
    pub cache: CacheConfig,
    pub audit: PathBuf,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Database {
    /// A SQLite file, which one process uses exclusively.
    Sqlite(PathBuf),
    /// A PostgreSQL database, which instances share.
    Postgres {
        /// URL with user and password.
        url: String,
        /// Maximum number of connections of this instance.
        connections: usize,
        /// PostgreSQL releases the worker locks of this instance after this long without a message from it.
        lock_timeout: Duration,
    },
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            // The URL holds a password.
            Self::Postgres { .. } => f.write_str("postgres"),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Server {
    pub listen: SocketAddr,
    /// Region that clients sign for.
    pub region: String,
    /// Larger objects are refused.
    pub object_bytes_max: u64,
    /// Domain of virtual-host style requests.
    pub domain: Option<String>,
    /// Number of request slots.
    pub max_concurrent_requests: usize,
    /// Maximum number of open connections; the limit on open files may lower it.
    pub max_connections: usize,
    /// Maximum number of open connections from one IPv4 address or IPv6 /64 network.
    pub max_connections_per_address: usize,
    /// Bytes per second. When no request slot is free, slower transfers are ended.
    pub min_transfer_rate: u64,
    /// Share of the free capacity that the open writes of one access key may reserve.
    pub max_reserved_share: f64,
}

#[derive(Debug, Clone)]
pub struct AdminConfig {
    pub listen: SocketAddr,
    /// Admin token; if `None`, the first start generates one.
    pub token: Option<String>,
}

/// One entry of `backends`.
#[derive(Debug, Clone)]
pub struct BackendConfig {
    pub name: BackendName,
    /// Maximum number of bytes that s3o stores there; `None`: unlimited.
    pub quota_bytes: Option<u64>,
    /// Larger objects are stored on other backends; `None`: unlimited.
    pub object_bytes_max: Option<u64>,
    /// Limits of requests and transferred bytes in each month.
    pub usage_limits: UsageLimits,
    pub kind: BackendKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendKind {
    Fs {
        root: PathBuf,
    },
    /// A bucket of an S3-compatible service.
    S3(Box<S3Options>),
}

#[derive(Debug, Clone, Copy)]
pub struct ReplicationConfig {
    /// Number of copies of objects in buckets without `replication_factor`.
    pub factor: usize,
    /// Number of copies that a write stores before it is acknowledged.
    pub write_copies: usize,
    /// Number of copies with which a write is acknowledged if backends fail.
    pub write_copies_min: usize,
    /// Interval of `replicator`.
    pub interval: Duration,
    /// Interval of the worker that removes excess copies.
    pub over_replication_interval: Duration,
    /// Number of contents per batch.
    pub batch_size: usize,
    /// Number of copies that are written in parallel.
    pub concurrency: usize,
    /// How long a backend must fail at every instance before its copies no longer count.
    pub unhealthy_after: Duration,
}

#[derive(Debug, Clone, Copy)]
pub struct IntentsConfig {
    /// False: direct mode, which records no intents.
    pub enabled: bool,
    /// What the reaper does with complete writes whose writer is gone.
    pub recovery: Recovery,
    /// Number of intents that the reaper resolves in parallel.
    pub concurrency: usize,
    /// Duration of a lease.
    pub min_age: Duration,
    /// Interval of the reaper.
    pub reaper_tick: Duration,
    /// Number of intents per batch of the reaper.
    pub batch_size: usize,
    /// How long the bytes of a write whose answer was lost may still arrive.
    pub late_write_window: Duration,
}

#[derive(Debug, Clone, Copy)]
pub struct CleanupQueue {
    /// Interval of runs that no delete triggers.
    pub interval: Duration,
    /// Number of rows per claim.
    pub batch_size: usize,
    /// Number of rows with an unknown write outcome that are handled in parallel.
    pub concurrency: usize,
    /// Age at which a claim is released.
    pub claim_grace_period: Duration,
    /// Backoff and number of attempts of refused rows.
    pub retries: Retries,
    /// How long running reads of a deleted multipart object may continue.
    pub reader_grace: Duration,
    /// An upload without activity for this long is aborted.
    pub multipart_stale_timeout: Duration,
}

/// Settings of workers that have little more than an interval.
#[derive(Debug, Clone, Copy)]
pub struct MaintenanceConfig {
    /// Interval of `stale_multipart`.
    pub stale_multipart: Duration,
    /// Interval of `quota_audit`.
    pub quota_audit: Duration,
    /// Interval of `watchdog`.
    pub watchdog: Duration,
    /// Interval of `identity`, which raises the marks on the backends.
    pub identity: Duration,
    /// Interval of probes of idle backends; zero: never; `None`: the default of the backend's kind.
    pub probe_interval: Option<Duration>,
    /// Delay of deletes after a start; `None`: the default of the backend's kind.
    pub delete_delay: Option<Duration>,
}

impl Config {
    /// The configuration without a file: SQLite and one folder backend, all below `data`.
    #[must_use]
    pub fn embedded(data: &Path) -> Self {
        let tree = serde_json::json!({"backends": [{"name": "disk", "kind": "fs"}]});
        sections::config(&tree, data).expect("the built-in configuration is valid")
    }

    /// Reads and validates a configuration file; paths that are not configured are below `data`.
    pub fn load(path: &Path, data: &Path) -> Result<Self, Faults> {
        let text = file::read(path).map_err(|why| Faults::one("", format!("cannot read {}: {why}", path.display())))?;
        Self::of_text(&path.display().to_string(), &text, data, |name| std::env::var(name).ok())
    }

    fn of_text(
        source: &str,
        text: &str,
        data: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Faults> {
        let used = RefCell::new(Vec::new());
        let recorded = |name: &str| {
            let value = variable(name)?;
            used.borrow_mut().push((name.to_owned(), value.clone()));
            Some(value)
        };
        let tree = yaml::parse(source, text, &recorded)?;
        sections::config(&tree, data).map_err(|faults| faults.without_values(&used.borrow()))
    }

    #[cfg(test)]
    fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Faults> {
        Self::of_text("configuration", text, Path::new(DATA), variable)
    }
}

#[cfg(test)]
mod tests;
