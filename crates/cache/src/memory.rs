//! The memory tier: bounded in bytes, evicts the least useful entries first, and drops expired
//! entries.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::ids::ContentId;

use crate::tier::{CacheEntry, Tier, TierError};

/// Memory of an entry in addition to its body: key, expiration and table slots.
const OVERHEAD_BYTES: u64 = 160;
/// Largest number of shards; each has its own lock and its share of the capacity.
const SHARDS_MAX: u64 = 16;
/// Number of largest bodies that fit into one shard.
const LARGEST_PER_SHARD: u64 = 8;
/// Expected average size of a body; it sets the number of evicted keys that are tracked.
const EXPECTED_BYTES: u64 = 16 * 1024;

#[derive(Debug, Clone)]
struct CachedBody {
    body: Bytes,
    until: Timestamp,
}

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<ContentId, CachedBody> for ByBytes {
    fn weight(&self, _content: &ContentId, stored: &CachedBody) -> u64 {
        stored.body.len() as u64 + OVERHEAD_BYTES
    }
}

/// Deterministic hashing, so that a seeded simulation replays.
type FixedHasher = BuildHasherDefault<DefaultHasher>;

/// Bodies in this process, shared by all its requests.
pub struct MemoryTier {
    bodies: Cache<ContentId, CachedBody, ByBytes, FixedHasher>,
    clock: Arc<dyn Clock>,
}

impl MemoryTier {
    /// A tier of `max_bytes` for bodies up to `object_bytes_max`.
    #[must_use]
    pub fn new(max_bytes: u64, object_bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        let largest = (object_bytes_max + OVERHEAD_BYTES) * LARGEST_PER_SHARD;
        let shards = (max_bytes / largest).clamp(1, SHARDS_MAX);
        // The number of shards must be a power of two; the library would round it up.
        let shards = 1 << shards.ilog2();
        let expected = usize::try_from(max_bytes / EXPECTED_BYTES).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(expected.clamp(32 * shards, 1 << 24))
            .weight_capacity(max_bytes)
            .build()
            .expect("all required options are set");
        Self {
            bodies: Cache::with_options(options, ByBytes, FixedHasher::default(), DefaultLifecycle::default()),
            clock,
        }
    }

    /// A body that has not expired.
    pub(crate) fn find(&self, content: ContentId) -> Option<Bytes> {
        let stored = self.bodies.get(&content)?;
        if stored.until > self.clock.now() {
            return Some(stored.body);
        }
        self.bodies.remove(&content);
        None
    }

    pub(crate) fn insert(&self, content: ContentId, body: Bytes, ttl: Duration) {
        self.bodies.insert(content, CachedBody { body, until: self.clock.now().after(ttl) });
    }

    pub(crate) fn remove_all(&self, contents: &[ContentId]) {
        for content in contents {
            self.bodies.remove(content);
        }
    }

    pub(crate) fn remove_expired(&self) {
        let now = self.clock.now();
        self.bodies.retain(|_, stored| stored.until > now);
    }

    /// Number of stored bodies, expired ones included.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.bodies.len()
    }

    /// Bytes of the stored bodies with their overhead.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bodies.weight()
    }
}

#[async_trait]
impl Tier for MemoryTier {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn get(&self, content: ContentId, size_bytes: u64) -> Result<Option<Bytes>, TierError> {
        let found = self.find(content);
        match &found {
            Some(body) if body.len() as u64 != size_bytes => Err(TierError::Corrupt("wrong length")),
            Some(_) | None => Ok(found),
        }
    }

    async fn put(&self, entries: &[CacheEntry]) -> Result<(), TierError> {
        for entry in entries {
            self.insert(entry.content, entry.body.clone(), entry.ttl);
        }
        Ok(())
    }

    async fn remove(&self, contents: &[ContentId]) -> Result<(), TierError> {
        self.remove_all(contents);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryTier;
    use bytes::Bytes;
    use s3o_model::clock::{ManualClock, Timestamp};
    use s3o_model::ids::ContentId;
    use std::sync::Arc;
    use std::time::Duration;
    use uuid::Uuid;

    const MINUTE: Duration = Duration::from_mins(1);
    const MIB: u64 = 1 << 20;

    fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_000_000)))
    }

    fn content(number: u128) -> ContentId {
        ContentId::new(Uuid::from_u128(number))
    }

    fn body(bytes: u64) -> Bytes {
        vec![7; usize::try_from(bytes).expect("small")].into()
    }

    #[test]
    fn size_never_exceeds_the_limit() {
        for (max_bytes, object_bytes_max) in [(MIB, MIB), (4 * MIB, 1 << 12), (64 * MIB, MIB)] {
            let memory = MemoryTier::new(max_bytes, object_bytes_max, clock());
            for number in 0..2_000 {
                memory.insert(content(number), body(object_bytes_max / (1 + (number % 4) as u64) - 1_000), MINUTE);
                assert!(memory.bytes() <= max_bytes, "{} of {max_bytes}", memory.bytes());
            }
        }
    }

    #[test]
    fn several_bodies_of_the_largest_size_fit() {
        for max_bytes in [8 * MIB, 64 * MIB, 256 * MIB] {
            let memory = MemoryTier::new(max_bytes, MIB, clock());
            for number in 0..4 {
                memory.insert(content(number), body(MIB), MINUTE);
            }
            let found = (0..4).filter(|number| memory.find(content(*number)).is_some()).count();
            assert_eq!(found, 4, "of {max_bytes}");
        }
    }

    #[test]
    fn repeatedly_read_bodies_outlive_bodies_read_once() {
        let memory = MemoryTier::new(4 * MIB, 1 << 12, clock());
        for number in 0..100_000_u128 {
            memory.insert(content(1_000 + number), body(1 << 12), MINUTE);
            if memory.find(content(number % 100)).is_none() {
                memory.insert(content(number % 100), body(1 << 12), MINUTE);
            }
        }
        let found = (0..100).filter(|number| memory.find(content(*number)).is_some()).count();
        assert!(found >= 90, "{found} of 100 hot bodies are left");
    }

    #[test]
    fn expired_entry_frees_its_bytes() {
        let clock = clock();
        let memory = MemoryTier::new(MIB, 1 << 12, clock.clone());
        memory.insert(content(1), body(100), MINUTE);
        clock.advance(MINUTE);
        assert_eq!((memory.find(content(1)), memory.entries(), memory.bytes()), (None, 0, 0));
    }
}
