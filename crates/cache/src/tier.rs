//! The trait of a cache tier.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use s3o_model::ids::ContentId;

/// Number of entries that one round trip removes.
pub const REMOVE_MAX: usize = 1000;

/// A body with its time to live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    /// The content of the body.
    pub content: ContentId,
    /// The complete body.
    pub body: Bytes,
    /// Time to live.
    pub ttl: Duration,
}

/// Why a tier gave no answer. The caller continues without the tier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    /// The tier is known to be unavailable and was not queried.
    #[error("unavailable, not queried")]
    Skipped,
    /// The tier did not answer, or refused.
    #[error("unavailable: {0}")]
    Away(String),
    /// The stored value is not the body of that content.
    #[error("corrupt entry: {0}")]
    Corrupt(&'static str),
}

/// Stores bodies for a limited time. A tier may drop any entry at any time, but never returns anything
/// but the body that was stored for that content.
#[async_trait]
pub trait Tier: Send + Sync {
    /// Name in metrics.
    fn name(&self) -> &'static str;

    /// The body of a content of this size, if it is stored and has not expired.
    async fn get(&self, content: ContentId, size_bytes: u64) -> Result<Option<Bytes>, TierError>;

    /// Stores bodies, each for its time to live.
    async fn put(&self, entries: &[CacheEntry]) -> Result<(), TierError>;

    /// Removes bodies, whether stored or not; up to [`REMOVE_MAX`] in one round trip.
    async fn remove(&self, contents: &[ContentId]) -> Result<(), TierError>;

    /// Keeps the connection open; it does not return.
    async fn stay_reachable(&self) {
        std::future::pending::<()>().await;
    }

    /// False while the tier is known to be unavailable.
    fn is_reachable(&self) -> bool {
        true
    }
}
