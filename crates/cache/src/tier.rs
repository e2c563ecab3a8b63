//! A tier: one place that keeps bodies.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use s3o_model::ids::ContentId;

/// How many bodies are forgotten in one round trip.
pub const FORGET_MAX: usize = 1000;

/// A body and for how long it may be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Whose body it is.
    pub content: ContentId,
    /// All of it.
    pub body: Bytes,
    /// For how long.
    pub time: Duration,
}

/// Why a tier gave no answer. Whoever asked goes on without it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TierError {
    /// It is known to be away and was not asked.
    #[error("away, not asked")]
    NotAsked,
    /// It was asked and did not answer, or refused.
    #[error("away: {0}")]
    Away(String),
    /// What it holds under that name is not that body.
    #[error("it holds something else: {0}")]
    Wrong(&'static str),
}

/// A place that keeps bodies for a while. It may forget any of them at any time, but never answers
/// with anything but the body that was kept under that name.
#[async_trait]
pub trait Tier: Send + Sync {
    /// Its name in metrics.
    fn name(&self) -> &'static str;

    /// The body of a content of this length, if it is kept here and its time is not over.
    async fn get(&self, content: ContentId, size_bytes: u64) -> Result<Option<Bytes>, TierError>;

    /// Keeps bodies, each for its time.
    async fn keep(&self, entries: &[Entry]) -> Result<(), TierError>;

    /// Forgets bodies, whether it has them or not; up to [`FORGET_MAX`] in one round trip.
    async fn forget(&self, contents: &[ContentId]) -> Result<(), TierError>;

    /// Does what it takes to stay within reach, for as long as it is polled.
    async fn stay_reachable(&self) {
        std::future::pending::<()>().await;
    }

    /// Whether it would be asked now.
    fn is_reachable(&self) -> bool {
        true
    }
}
