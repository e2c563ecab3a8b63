//! Bodies in this process: bounded in bytes, the least useful go first, and each ends with its
//! time.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::ids::ContentId;

use crate::tier::{Entry, Tier, TierError};

/// What an entry takes besides its body: name, time, and its place in the tables.
const OVERHEAD_BYTES: u64 = 160;
/// A shard is locked as a whole, and has room for its share only.
const SHARDS_MAX: u64 = 16;
/// How many of the largest bodies a shard has room for.
const LARGEST_PER_SHARD: u64 = 8;
/// What a body takes on average; how much is remembered of those that went follows from it.
const EXPECTED_BYTES: u64 = 16 * 1024;

#[derive(Debug, Clone)]
struct Kept {
    body: Bytes,
    until: Timestamp,
}

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<ContentId, Kept> for ByBytes {
    fn weight(&self, _content: &ContentId, kept: &Kept) -> u64 {
        kept.body.len() as u64 + OVERHEAD_BYTES
    }
}

/// Hashes alike in every process, so that a run with a seed replays.
type Hasher = BuildHasherDefault<DefaultHasher>;

/// Bodies in memory.
pub struct Memory {
    kept: Cache<ContentId, Kept, ByBytes, Hasher>,
    clock: Arc<dyn Clock>,
}

impl Memory {
    /// A memory of this size for bodies up to that one.
    #[must_use]
    pub fn new(max_bytes: u64, object_bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        let largest = (object_bytes_max + OVERHEAD_BYTES) * LARGEST_PER_SHARD;
        let shards = (max_bytes / largest).clamp(1, SHARDS_MAX);
        // Shards are a power of two, and what is not would be rounded up.
        let shards = 1 << shards.ilog2();
        let expected = usize::try_from(max_bytes / EXPECTED_BYTES).unwrap_or(usize::MAX);
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(expected.clamp(32 * shards, 1 << 24))
            .weight_capacity(max_bytes)
            .build()
            .expect("all that must be set is set");
        Self { kept: Cache::with_options(options, ByBytes, Hasher::default(), DefaultLifecycle::default()), clock }
    }

    /// A body whose time is not over.
    pub(crate) fn find(&self, content: ContentId) -> Option<Bytes> {
        let kept = self.kept.get(&content)?;
        if kept.until > self.clock.now() {
            return Some(kept.body);
        }
        self.kept.remove(&content);
        None
    }

    pub(crate) fn put(&self, content: ContentId, body: Bytes, time: Duration) {
        self.kept.insert(content, Kept { body, until: self.clock.now().after(time) });
    }

    pub(crate) fn drop_all(&self, contents: &[ContentId]) {
        for content in contents {
            self.kept.remove(content);
        }
    }

    /// Drops what has had its time and nobody asked for since.
    pub(crate) fn sweep(&self) {
        let now = self.clock.now();
        self.kept.retain(|_, kept| kept.until > now);
    }

    /// How many bodies it keeps.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.kept.len()
    }

    /// What they take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.kept.weight()
    }
}

#[async_trait]
impl Tier for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn get(&self, content: ContentId, size_bytes: u64) -> Result<Option<Bytes>, TierError> {
        let found = self.find(content);
        match &found {
            Some(body) if body.len() as u64 != size_bytes => Err(TierError::Wrong("another length")),
            Some(_) | None => Ok(found),
        }
    }

    async fn keep(&self, entries: &[Entry]) -> Result<(), TierError> {
        for entry in entries {
            self.put(entry.content, entry.body.clone(), entry.time);
        }
        Ok(())
    }

    async fn forget(&self, contents: &[ContentId]) -> Result<(), TierError> {
        self.drop_all(contents);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;
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
    fn it_never_takes_more_than_it_may() {
        for (max_bytes, object_bytes_max) in [(MIB, MIB), (4 * MIB, 1 << 12), (64 * MIB, MIB)] {
            let memory = Memory::new(max_bytes, object_bytes_max, clock());
            for number in 0..2_000 {
                memory.put(content(number), body(object_bytes_max / (1 + (number % 4) as u64) - 1_000), MINUTE);
                assert!(memory.bytes() <= max_bytes, "{} of {max_bytes}", memory.bytes());
            }
        }
    }

    #[test]
    fn bodies_of_the_largest_size_are_kept_side_by_side() {
        for max_bytes in [8 * MIB, 64 * MIB, 256 * MIB] {
            let memory = Memory::new(max_bytes, MIB, clock());
            for number in 0..4 {
                memory.put(content(number), body(MIB), MINUTE);
            }
            let found = (0..4).filter(|number| memory.find(content(*number)).is_some()).count();
            assert_eq!(found, 4, "of {max_bytes}");
        }
    }

    #[test]
    fn what_is_asked_for_again_outlives_what_came_once() {
        let memory = Memory::new(4 * MIB, 1 << 12, clock());
        for number in 0..100_000_u128 {
            memory.put(content(1_000 + number), body(1 << 12), MINUTE);
            if memory.find(content(number % 100)).is_none() {
                memory.put(content(number % 100), body(1 << 12), MINUTE);
            }
        }
        let found = (0..100).filter(|number| memory.find(content(*number)).is_some()).count();
        assert!(found >= 90, "{found} of 100 hot bodies are left");
    }

    #[test]
    fn an_entry_whose_time_is_over_gives_its_room_back() {
        let clock = clock();
        let memory = Memory::new(MIB, 1 << 12, clock.clone());
        memory.put(content(1), body(100), MINUTE);
        clock.advance(MINUTE);
        assert_eq!((memory.find(content(1)), memory.entries(), memory.bytes()), (None, 0, 0));
    }
}
