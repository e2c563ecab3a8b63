//! Configuration: what the file says becomes validated values, or a list of every fault with its
//! path. Settings of parts that are not built yet are refused by name.

mod cache;
mod faults;
mod file;
mod places;
mod read;
mod restart;
mod sections;
mod server;
pub mod units;
mod warnings;
mod yaml;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use s3o_backend::s3::S3Options;
use s3o_model::bucket::ConfiguredBuckets;
use s3o_model::cleanup::Retries;
use s3o_model::lifecycle::ConfiguredRule;
use s3o_model::names::BackendName;
use s3o_model::recovery::Recovery;
use s3o_server::s3::AccessKey;

pub use cache::{Cache, Shared};
pub use faults::Faults;
pub use restart::keep_until_restart;

/// The data folder unless `--data` names another one. Paths that are not configured lie below it.
pub const DATA: &str = "./s3o-data";

/// The configuration file that is used without `--config`, if it exists.
const DEFAULT_FILE: &str = "./s3o.yaml";

/// The file that is used where none is named, with a note for people. One that cannot be read is named, too: reading it
/// tells why.
pub fn default_file() -> Option<PathBuf> {
    let path = PathBuf::from(DEFAULT_FILE);
    let exists = path.symlink_metadata().is_ok();
    if exists {
        println!("using the configuration in {DEFAULT_FILE}");
    }
    exists.then_some(path)
}

/// Everything that can be set.
#[derive(Debug, Clone)]
pub struct Config {
    /// The S3 door.
    pub server: Server,
    /// The admin door.
    pub admin: Admin,
    /// The catalog.
    pub database: Database,
    /// Who may do what; empty means that a key pair is made on the first start.
    pub access_keys: Vec<AccessKey>,
    /// Buckets that are created at start, and how they are.
    pub buckets: ConfiguredBuckets,
    /// Where bytes live.
    pub backends: Vec<BackendConfig>,
    /// How writes are announced.
    pub intents: Intents,
    /// How bytes are deleted.
    pub cleanup: CleanupQueue,
    /// How objects are removed by rules.
    pub lifecycle: Lifecycle,
    /// How objects whose time has passed are removed.
    pub expiry: Expiry,
    /// How often the smaller workers look.
    pub upkeep: Upkeep,
    /// How bodies are kept at hand.
    pub cache: Cache,
    /// The file of the audit trail.
    pub audit: PathBuf,
}

/// Where the catalog is.
#[derive(Clone, PartialEq, Eq)]
pub enum Database {
    /// In a file that one process owns.
    Sqlite(PathBuf),
    /// On a server that many instances share.
    Postgres {
        /// Where it is, with user and password.
        url: String,
        /// The most connections of this instance.
        connections: usize,
        /// After which silence this instance loses its locks on workers.
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

/// The S3 door.
#[derive(Debug, Clone)]
pub struct Server {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The region it says it is in.
    pub region: String,
    /// The largest object.
    pub object_bytes_max: u64,
    /// The domain for virtual-host style.
    pub domain: Option<String>,
    /// How many requests are answered at a time.
    pub max_concurrent_requests: usize,
    /// The most open connections; the limit on open files may lower it.
    pub max_connections: usize,
    /// The most open connections from one IPv4 address or IPv6 /64 network.
    pub max_connections_per_address: usize,
    /// When all request slots are taken, transfers slower than this, in bytes per second, are ended.
    pub min_transfer_rate: u64,
    /// The share of the free capacity that the writes under way of one access key may reserve.
    pub max_reserved_share: f64,
}

/// The admin door.
#[derive(Debug, Clone)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The token; `None` means that one is made on the first start.
    pub token: Option<String>,
}

/// A backend.
#[derive(Debug, Clone)]
pub struct BackendConfig {
    /// Its name.
    pub name: BackendName,
    /// What it may hold.
    pub quota_bytes: Option<u64>,
    /// What it is.
    pub kind: BackendKind,
}

/// What a backend is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendKind {
    /// A folder.
    Fs {
        /// Where it is.
        root: PathBuf,
    },
    /// A bucket of an S3-compatible service.
    S3(Box<S3Options>),
}

/// How writes are announced.
#[derive(Debug, Clone, Copy)]
pub struct Intents {
    /// Whether they are announced at all.
    pub enabled: bool,
    /// What is done with writes whose writer is gone.
    pub recovery: Recovery,
    /// How many of those are looked at side by side.
    pub concurrency: usize,
    /// The length of a lease.
    pub min_age: Duration,
    /// How often the reaper looks.
    pub reaper_tick: Duration,
    /// How many writes it resolves at a time.
    pub batch_size: usize,
    /// How long a write whose answer was lost may still land.
    pub late_write_window: Duration,
}

/// How bytes are deleted.
#[derive(Debug, Clone, Copy)]
pub struct CleanupQueue {
    /// How often the queue is looked at without being woken.
    pub interval: Duration,
    /// How many rows are claimed at a time.
    pub batch_size: usize,
    /// How many rows that need care are worked on side by side.
    pub concurrency: usize,
    /// After how long a claim is free again.
    pub claim_grace_period: Duration,
    /// How refused rows are tried again.
    pub retries: Retries,
    /// How long readers of joined content may go on after its deletion.
    pub reader_grace: Duration,
    /// After how long without activity an upload is aborted.
    pub multipart_stale_timeout: Duration,
}

/// How objects are removed by rules.
#[derive(Debug, Clone)]
pub struct Lifecycle {
    /// How often rules are applied.
    pub interval: Duration,
    /// The rules, besides those that buckets have of their own.
    pub rules: Vec<ConfiguredRule>,
}

/// How objects whose time has passed are removed.
#[derive(Debug, Clone, Copy)]
pub struct Expiry {
    /// How often they are looked for.
    pub interval: Duration,
    /// How many are claimed at a time.
    pub batch_size: usize,
    /// After how long a removal that does not end is begun again.
    pub stuck_after: Duration,
}

/// How often the smaller workers look.
#[derive(Debug, Clone, Copy)]
pub struct Upkeep {
    /// For uploads that nobody works on.
    pub stale_multipart: Duration,
    /// Whether books and counts agree with their rows.
    pub quota_audit: Duration,
    /// For what dead workers left behind.
    pub watchdog: Duration,
    /// For raising the marks on the backends.
    pub identity: Duration,
    /// How often idle backends are probed; zero: never. Without it the kind of the backend decides.
    pub probe_interval: Option<Duration>,
    /// How long after a start deletes begin. Without it the kind of the backend decides.
    pub delete_delay: Option<Duration>,
}

impl Config {
    /// What holds when nothing is configured: everything below one folder.
    #[must_use]
    pub fn embedded(data: &Path) -> Self {
        let tree = serde_json::json!({"backends": [{"name": "disk", "kind": "fs"}]});
        sections::config(&tree, data).expect("the built-in configuration is valid")
    }

    /// Reads a configuration file: a regular one, of a mebibyte at most. What it does not configure lies below `data`.
    pub fn load(path: &Path, data: &Path) -> Result<Self, Faults> {
        let text = file::read(path).map_err(|why| Faults::one("", format!("cannot read {}: {why}", path.display())))?;
        let tree = yaml::parse(&path.display().to_string(), &text, &|name| std::env::var(name).ok())?;
        sections::config(&tree, data)
    }

    #[cfg(test)]
    fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Faults> {
        sections::config(&yaml::parse("configuration", text, &variable)?, Path::new(DATA))
    }
}

#[cfg(test)]
mod tests;
