//! The cache: memory first, then the shared tier, then the backend. Of concurrent readers that miss the
//! same body, one fetches it for all.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prometheus_client::registry::Registry;
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::ids::ContentId;
use s3o_model::ttl::cache_ttl;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::memory::MemoryTier;
use crate::metrics::CacheMetrics;
use crate::single_flight::{FetchResult, InFlight, Role};
use crate::tier::{CacheEntry, Tier, TierError};
use crate::write_behind::WriteBehind;

/// Bodies being fetched may take this fraction of `max_bytes` in addition to it, and the write-behind
/// queue the same again.
const IN_FLIGHT_SHARE: u64 = 8;

/// Shortest interval between two removals of expired entries.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Limits of the cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheSettings {
    /// Largest size of the memory tier.
    pub max_bytes: u64,
    /// Largest body that is cached.
    pub object_bytes_max: u64,
    /// Longest time to live of an entry.
    pub ttl: Duration,
}

/// Constructor arguments of [`Cache`].
pub struct CacheParts {
    /// Limits.
    pub settings: CacheSettings,
    /// The tier that instances share, if configured.
    pub shared: Option<Arc<dyn Tier>>,
    /// Wall time, for expiration.
    pub clock: Arc<dyn Clock>,
}

/// The body of an object that was just resolved in the catalog.
#[derive(Debug, Clone, Copy)]
pub struct BodyRequest {
    /// Key of the cache entry.
    pub content: ContentId,
    /// Size of the body; an entry with another size is corrupt.
    pub size_bytes: u64,
    /// Expiration of the object; the entry expires with it.
    pub expires_at: Option<Timestamp>,
}

/// Size and counters of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheStats {
    /// Number of bodies in memory.
    pub entries: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// Limit of the bytes in memory.
    pub max_bytes: u64,
    /// Reads answered from memory or with the body that another reader fetched.
    pub hits: u64,
    /// All other reads.
    pub misses: u64,
    /// Reads answered from the shared tier.
    pub shared_hits: u64,
    /// True if the shared tier is reachable; `None` without one.
    pub shared_reachable: Option<bool>,
}

struct SharedTier {
    tier: Arc<dyn Tier>,
    writes: WriteBehind,
}

/// Caches small bodies.
pub struct Cache {
    memory: MemoryTier,
    shared: Option<SharedTier>,
    in_flight: InFlight,
    /// One permit for each byte that may be fetched concurrently.
    fetch_bytes: Semaphore,
    settings: CacheSettings,
    clock: Arc<dyn Clock>,
    metrics: CacheMetrics,
}

impl Cache {
    /// An empty cache.
    #[must_use]
    pub fn new(parts: CacheParts) -> Self {
        let CacheParts { settings, shared, clock } = parts;
        let metrics = CacheMetrics::default();
        let bytes_max = (settings.max_bytes / IN_FLIGHT_SHARE).max(settings.object_bytes_max);
        let permits = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let shared = shared
            .map(|tier| SharedTier { writes: WriteBehind::new(Arc::clone(&tier), bytes_max, metrics.clone()), tier });
        Self {
            memory: MemoryTier::new(settings.max_bytes, settings.object_bytes_max, Arc::clone(&clock)),
            shared,
            in_flight: InFlight::default(),
            fetch_bytes: Semaphore::new(permits),
            settings,
            clock,
            metrics,
        }
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let shared: Vec<&'static str> = self.shared.iter().map(|shared| shared.tier.name()).collect();
        self.metrics.register(registry, &shared);
    }

    /// True if bodies of this size are cached. Empty bodies are not, because they need no read.
    #[must_use]
    pub fn takes(&self, size_bytes: u64) -> bool {
        (1..=self.settings.object_bytes_max).contains(&size_bytes)
    }

    /// The body from the cache, or from `load`, which must return it complete and verified. Concurrent
    /// readers of the same body share one `load`. `None` if too many bytes are being fetched; the caller
    /// then reads without the cache.
    pub async fn body<E, L>(&self, request: &BodyRequest, load: impl Fn() -> L) -> Result<Option<Bytes>, E>
    where
        L: Future<Output = Result<Bytes, E>>,
    {
        if let Some(body) = self.memory.find(request.content) {
            self.metrics.count_request("memory", "hit");
            return Ok(Some(body));
        }
        loop {
            let follower = match self.in_flight.join(request.content) {
                Role::Follower(follower) => follower,
                Role::Leader(leader) => {
                    let fetched = self.fetch(request, &load).await;
                    let body = fetched.as_ref().ok().and_then(Option::clone);
                    leader.finish(body.map_or(FetchResult::Nothing, FetchResult::Body));
                    return fetched;
                }
            };
            match follower.result().await {
                Some(FetchResult::Body(body)) => {
                    self.metrics.count_request("memory", "shared");
                    return Ok(Some(body));
                }
                Some(FetchResult::Nothing) => return self.fetch(request, &load).await,
                None => {}
            }
        }
    }

    /// Fetches a body that is not in memory, and caches it.
    async fn fetch<E, L>(&self, request: &BodyRequest, load: &impl Fn() -> L) -> Result<Option<Bytes>, E>
    where
        L: Future<Output = Result<Bytes, E>>,
    {
        // A fetch that finished since the first lookup may have cached it.
        if let Some(body) = self.memory.find(request.content) {
            self.metrics.count_request("memory", "hit");
            return Ok(Some(body));
        }
        let Some(_permit) = self.reserve(request.size_bytes) else {
            self.metrics.count_request("memory", "bypass");
            return Ok(None);
        };
        self.metrics.count_request("memory", "miss");
        if let Some(body) = self.get_shared(request).await {
            self.put_in_memory(request, &body);
            return Ok(Some(body));
        }
        let body = load().await?;
        if let Some(ttl) = self.put_in_memory(request, &body)
            && let Some(shared) = &self.shared
        {
            shared.writes.put(CacheEntry { content: request.content, body: body.clone(), ttl });
        }
        Ok(Some(body))
    }

    fn reserve(&self, size_bytes: u64) -> Option<SemaphorePermit<'_>> {
        self.fetch_bytes.try_acquire_many(u32::try_from(size_bytes).ok()?).ok()
    }

    fn put_in_memory(&self, request: &BodyRequest, body: &Bytes) -> Option<Duration> {
        let ttl = cache_ttl(self.settings.ttl, request.expires_at, self.clock.now())?;
        self.memory.insert(request.content, body.clone(), ttl);
        Some(ttl)
    }

    /// The body from the shared tier; every error of the tier counts as a miss.
    async fn get_shared(&self, request: &BodyRequest) -> Option<Bytes> {
        let tier = &self.shared.as_ref()?.tier;
        let answer = tier.get(request.content, request.size_bytes).await;
        let outcome = match &answer {
            Ok(Some(_)) => "hit",
            Ok(None) => "miss",
            Err(TierError::Skipped) => "skipped",
            Err(TierError::Away(_)) => "error",
            Err(TierError::Corrupt(why)) => {
                tracing::warn!(tier = tier.name(), content = %request.content, why, "cache entry corrupt");
                "corrupt"
            }
        };
        self.metrics.count_request(tier.name(), outcome);
        answer.ok().flatten()
    }

    /// Removes contents that no row refers to any more: from memory immediately, from the shared tier
    /// through the write-behind queue.
    pub fn forget(&self, contents: &[ContentId]) {
        self.memory.remove_all(contents);
        self.metrics.count_invalidations("memory", "ok", contents.len());
        if let Some(shared) = &self.shared {
            shared.writes.remove(contents);
        }
    }

    /// Removes expired entries, keeps the shared tier connected and sends it the queued writes; it does
    /// not return.
    pub async fn run_maintenance(&self) {
        match &self.shared {
            Some(shared) => {
                tokio::join!(self.remove_expired(), shared.tier.stay_reachable(), shared.writes.run());
            }
            None => self.remove_expired().await,
        }
    }

    async fn remove_expired(&self) {
        loop {
            tokio::time::sleep(self.settings.ttl.max(SWEEP_INTERVAL_MIN)).await;
            self.memory.remove_expired();
        }
    }

    /// Current size and counters since the start.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let requests = |outcome| self.metrics.count("memory", outcome);
        let shared = self.shared.as_ref().map(|shared| &shared.tier);
        CacheStats {
            entries: self.memory.entries() as u64,
            bytes: self.memory.bytes(),
            max_bytes: self.settings.max_bytes,
            hits: requests("hit") + requests("shared"),
            misses: requests("miss") + requests("bypass"),
            shared_hits: shared.map_or(0, |tier| self.metrics.count(tier.name(), "hit")),
            shared_reachable: shared.map(|tier| tier.is_reachable()),
        }
    }
}

#[cfg(test)]
mod tests;
