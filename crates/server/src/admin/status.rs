//! How the whole is: backends, buckets, queues, workers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::AdminParts;
use super::error::AdminError;

/// How the whole is. Counts that are not known are null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// This process.
    pub instance: String,
    /// The version of the program.
    pub version: String,
    /// Whether the catalog can be trusted.
    pub catalog: CatalogStatus,
    /// Where bytes live.
    pub backends: Vec<BackendStatus>,
    /// Where objects are named.
    pub buckets: Vec<BucketStatus>,
    /// What waits.
    pub queues: QueueStatus,
    /// What is kept at hand; null where nothing is.
    pub cache: Option<CacheStatus>,
    /// Whether the clock is trusted.
    #[serde(default)]
    pub clock: ClockStatus,
    /// What happens by itself.
    pub workers: Vec<Value>,
    /// Conditions that need an operator.
    pub warnings: Vec<String>,
}

/// Whether the catalog can be trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogStatus {
    /// `ok`, `checking`, `doubtful` or `degraded`.
    pub state: String,
    /// What was found.
    pub reason: Option<String>,
    /// What an operator can do about it.
    pub remedy: Option<String>,
}

/// Whether the clock is trusted; what time decides waits while it is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStatus {
    /// Trusted, held, or not used.
    pub state: ClockState,
    /// Why the clock is not trusted.
    pub reason: Option<String>,
    /// Since when, by the clock that is in doubt.
    pub since: Option<String>,
}

/// Whether the clock is trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockState {
    /// The clock is trusted.
    #[default]
    Ok,
    /// The clock is not trusted: expiry, lifecycle, stale uploads and grace periods are paused.
    Held,
    /// Only the database's clock counts.
    Database,
}

/// How a backend is; sizes in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendStatus {
    /// Its name.
    pub name: String,
    /// Bytes in locations.
    pub used: u64,
    /// Bytes it may hold.
    pub limit: Option<u64>,
    /// Bytes that wait for cleanup, dead letters included.
    pub orphan: u64,
    /// Bytes that left the books on request, though nobody proved them gone.
    pub written_off: u64,
    /// Bytes reserved by open intents.
    pub reserved: u64,
    /// Locations on it.
    pub objects: Option<u64>,
    /// Health as the answering instance sees it.
    pub health: Health,
    /// Why it takes no writes.
    pub frozen: Option<String>,
    /// Why deletes wait there although it fits; the answering instance's view.
    pub deletes_wait: Option<String>,
    /// Since when it is away, in RFC 3339.
    pub since: Option<String>,
    /// The error of the last probe, while it is away.
    pub error: Option<String>,
    /// It has no space for bodies of this size and above, while it is full.
    pub full_from: Option<u64>,
    /// Whether it is being emptied.
    pub draining: bool,
}

/// Health of a backend as the answering instance sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
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

/// How a bucket is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketStatus {
    /// Its name.
    pub name: String,
    /// Objects in it.
    pub objects: Option<u64>,
    /// Their bytes.
    pub bytes: Option<u64>,
    /// Bytes that it did not have to store.
    pub saved: Option<u64>,
}

/// How much waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Rows in the cleanup queue.
    pub cleanup: u64,
    /// Cleanups that were refused too often.
    pub dead_letters: u64,
    /// Writes that were announced and not resolved.
    pub intents: u64,
    /// Multipart uploads that are open.
    pub uploads: u64,
    /// For how long the oldest row of each queue has been due, in seconds; 0 where nothing is.
    pub oldest_due_seconds: OldestDueStatus,
}

/// For how long the oldest row of each queue has been due, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OldestDueStatus {
    /// Cleanups, claimed or not.
    pub cleanup: f64,
    /// Intents whose lease ran out.
    pub pending_intents: f64,
    /// Multipart uploads that nobody works on.
    pub stale_multipart: f64,
    /// Objects whose time has passed.
    pub expiry: f64,
}

/// What the cache of this instance holds and has answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Bodies in memory.
    pub entries: u64,
    /// What they take.
    pub bytes: u64,
    /// What they may take.
    pub limit: u64,
    /// Reads that needed no backend and no shared cache.
    pub hits: u64,
    /// Reads that needed one.
    pub misses: u64,
    /// Of those, reads that the shared cache answered.
    pub shared_hits: u64,
    /// Whether there is a shared cache, and whether it answers.
    pub shared: SharedHealth,
}

/// Whether there is a shared cache, and whether it answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharedHealth {
    /// There is none.
    #[default]
    None,
    /// It answers.
    Ok,
    /// It does not; reads go on without it.
    Away,
}

/// Answers with the status.
pub async fn show(State(parts): State<AdminParts>) -> Result<Json<Status>, AdminError> {
    let status = parts.status.status().await;
    status.map(Json).map_err(|why| AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "away", why))
}
