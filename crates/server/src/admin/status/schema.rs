//! The JSON of `GET /admin/api/status`. Counts that are not known are null; sizes are in bytes, times in RFC 3339.

use s3o_backend::fleet::{BackendState, Health};
use s3o_cache::Cache;
use s3o_catalog::{Catalog, OldestDue};
use s3o_model::clock::Timestamp;
use s3o_workers::{ClockGuard, WorkerView};
use serde::Serialize;

use super::super::catalog::remedy;
use super::super::stats::CatalogCounts;
use super::usage::UsageStatus;

/// The whole answer.
#[derive(Debug, Serialize)]
pub struct StatusAnswer {
    /// The ID of this process.
    pub instance: String,
    pub version: &'static str,
    pub catalog: CatalogStatus,
    /// In the order in which writes fill them.
    pub backends: Vec<BackendStatus>,
    pub buckets: Vec<BucketStatus>,
    pub queues: QueueStatus,
    /// Null if the cache is disabled.
    pub cache: Option<CacheStatus>,
    pub clock: ClockStatus,
    pub workers: Vec<WorkerView>,
    /// Conditions that need an operator.
    pub warnings: Vec<String>,
}

/// Whether the catalog is intact.
#[derive(Debug, Serialize)]
pub struct CatalogStatus {
    /// `ok`, `checking`, `doubtful` or `degraded`.
    state: &'static str,
    /// What was found.
    reason: Option<String>,
    /// What an operator can do about it.
    remedy: Option<&'static str>,
}

impl CatalogStatus {
    pub fn new(catalog: &Catalog, restore_hint: &'static str) -> Self {
        let integrity = catalog.condition().integrity();
        Self {
            state: integrity.as_str(),
            reason: integrity.reason().map(str::to_owned),
            remedy: remedy(&integrity, restore_hint),
        }
    }
}

/// Whether the wall clock is trusted.
#[derive(Debug, Serialize)]
pub struct ClockStatus {
    state: ClockState,
    /// Why the clock is not trusted.
    reason: Option<String>,
    /// Since when, by the clock that is not trusted.
    since: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum ClockState {
    /// The clock is trusted.
    Ok,
    /// The clock is not trusted: expiry, lifecycle, stale uploads and grace periods are paused.
    Held,
    /// Only the database's clock is used.
    Database,
}

impl ClockStatus {
    pub fn new(guard: Option<&ClockGuard>) -> Self {
        match guard.map(ClockGuard::held) {
            None => Self { state: ClockState::Database, reason: None, since: None },
            Some(None) => Self { state: ClockState::Ok, reason: None, since: None },
            Some(Some(hold)) => {
                Self { state: ClockState::Held, reason: Some(hold.reason), since: Some(hold.since.to_string()) }
            }
        }
    }
}

/// Quota accounting and health of one backend.
#[derive(Debug, Serialize)]
pub struct BackendStatus {
    pub name: String,
    /// Bytes of locations.
    pub used: u64,
    /// The quota.
    pub limit: Option<u64>,
    /// Bytes waiting for cleanup, dead letters included.
    pub orphan: u64,
    /// Bytes of dead letters that an operator discarded without proof that the bytes are gone.
    pub written_off: u64,
    /// Bytes reserved by open intents.
    pub reserved: u64,
    /// Locations.
    pub objects: Option<u64>,
    #[serde(flatten)]
    pub health: BackendHealth,
    pub circuit_breaker: CircuitStatus,
    /// Why deletes wait there although its identity fits, as the answering instance sees it.
    pub deletes_wait: Option<String>,
    /// Whether it is being emptied.
    pub draining: bool,
    /// Since when its copies do not count, because no instance can use it.
    pub unhealthy_since: Option<String>,
    /// Null if it is not configured.
    pub usage: Option<UsageStatus>,
}

/// Whether the answering instance makes calls: `closed`, `half_open` or `open`.
#[derive(Debug, Serialize)]
pub struct CircuitStatus {
    pub reads: &'static str,
    pub writes: &'static str,
}

/// Health of a backend as the answering instance sees it.
#[derive(Debug, Default, Serialize)]
pub struct BackendHealth {
    pub health: HealthState,
    /// Why it takes no writes and no deletes.
    pub frozen: Option<String>,
    /// Since when it is away.
    pub since: Option<String>,
    /// The error of the last probe, while it is away.
    pub error: Option<String>,
    /// It has no space for bodies of this size and above, while it is full.
    pub full_from: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    /// It answers and takes writes.
    #[default]
    Ok,
    /// It does not answer.
    Away,
    /// It takes no writes until it is reached or accepted.
    Frozen,
    /// It reported that it has no space left.
    Full,
}

impl BackendHealth {
    /// `standing` is None for a backend that is not configured.
    pub fn new(standing: Option<&BackendState>, now: Timestamp) -> Self {
        let Some(standing) = standing else {
            let frozen = Some("not configured".to_owned());
            return Self { health: HealthState::Frozen, frozen, ..Self::default() };
        };
        let shown = Self { frozen: standing.frozen.clone(), ..Self::default() };
        match standing.health(now) {
            Health::Ok => shown,
            Health::Away(outage) => {
                let (since, error) = (Some(outage.since.to_string()), Some(outage.error));
                Self { health: HealthState::Away, since, error, ..shown }
            }
            Health::Frozen(_) => Self { health: HealthState::Frozen, ..shown },
            Health::Full { from_bytes } => Self { health: HealthState::Full, full_from: Some(from_bytes), ..shown },
        }
    }
}

/// One bucket, as of the last count.
#[derive(Debug, Serialize)]
pub struct BucketStatus {
    name: String,
    objects: Option<u64>,
    bytes: Option<u64>,
    /// Deleted by prefix and not purged yet; their bytes are still stored.
    trash_objects: Option<u64>,
    trash_bytes: Option<u64>,
    /// Bytes that deduplication saved.
    saved: Option<u64>,
}

impl BucketStatus {
    pub fn new(name: &str, counts: Option<&CatalogCounts>) -> Self {
        let count = counts.and_then(|counts| counts.bucket(name));
        Self {
            name: name.to_owned(),
            objects: count.map(|count| count.objects),
            bytes: count.map(|count| count.bytes),
            trash_objects: count.map(|count| count.trash_objects),
            trash_bytes: count.map(|count| count.trash_bytes),
            saved: count.map(|count| count.saved),
        }
    }
}

/// Lengths of the queues.
#[derive(Debug, Serialize)]
pub struct QueueStatus {
    /// Rows of the cleanup queue.
    pub cleanup: u64,
    pub dead_letters: u64,
    /// Intents that are not resolved.
    pub intents: u64,
    /// Open multipart uploads.
    pub uploads: u64,
    /// Contents with fewer copies than their factor.
    pub replication: u64,
    /// Contents with more copies than their factor.
    pub over_replication: u64,
    pub oldest_due_seconds: OldestDueStatus,
}

/// How long the oldest row of each queue has been due, in seconds; 0 if none is.
#[derive(Debug, Serialize)]
pub struct OldestDueStatus {
    /// Cleanups, claimed or not.
    cleanup: f64,
    /// Intents whose lease ended.
    pending_intents: f64,
    /// Multipart uploads without activity.
    stale_multipart: f64,
    /// Expired objects.
    expiry: f64,
}

impl From<OldestDue> for OldestDueStatus {
    fn from(due: OldestDue) -> Self {
        Self {
            cleanup: due.cleanup.as_secs_f64(),
            pending_intents: due.pending_intents.as_secs_f64(),
            stale_multipart: due.stale_multipart.as_secs_f64(),
            expiry: due.expiry.as_secs_f64(),
        }
    }
}

/// The cache of the answering instance.
#[derive(Debug, Serialize)]
pub struct CacheStatus {
    /// Bodies in memory.
    entries: u64,
    /// Their size.
    bytes: u64,
    /// The most they may take.
    limit: u64,
    /// Reads answered from memory.
    hits: u64,
    /// All other reads.
    misses: u64,
    /// Misses that the shared cache answered.
    shared_hits: u64,
    shared: SharedCacheState,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum SharedCacheState {
    /// No shared cache is configured.
    None,
    /// It answers.
    Ok,
    /// It does not answer; reads use the backends.
    Away,
}

impl CacheStatus {
    pub fn new(cache: &Cache) -> Self {
        let standing = cache.stats();
        Self {
            entries: standing.entries,
            bytes: standing.bytes,
            limit: standing.max_bytes,
            hits: standing.hits,
            misses: standing.misses,
            shared_hits: standing.shared_hits,
            shared: match standing.shared_reachable {
                None => SharedCacheState::None,
                Some(true) => SharedCacheState::Ok,
                Some(false) => SharedCacheState::Away,
            },
        }
    }
}
