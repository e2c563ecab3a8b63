//! Tests of concurrent readers, failing tiers and expiring entries.

use super::{BodyRequest, Cache, CacheParts, CacheSettings};
use crate::conformance::fresh;
use crate::memory::MemoryTier;
use crate::tier::{CacheEntry, Tier, TierError};
use async_trait::async_trait;
use bytes::Bytes;
use s3o_model::clock::{ManualClock, Timestamp};
use s3o_model::ids::ContentId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

const SETTINGS: CacheSettings =
    CacheSettings { max_bytes: 1 << 20, object_bytes_max: 1 << 16, ttl: Duration::from_mins(5) };

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_000_000)))
}

fn cache(shared: Option<Arc<dyn Tier>>) -> Arc<Cache> {
    Arc::new(Cache::new(CacheParts { settings: SETTINGS, shared, clock: clock() }))
}

fn wanted(content: ContentId) -> BodyRequest {
    BodyRequest { content, size_bytes: 3, expires_at: None }
}

/// A backend that counts reads and blocks them at a semaphore.
#[derive(Default)]
struct HeldStore {
    reads: AtomicUsize,
    started: Notify,
}

impl HeldStore {
    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    async fn read(&self, gate: &Semaphore) -> Result<Bytes, &'static str> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.started.notify_one();
        gate.acquire().await.map_err(|_| "broken")?.forget();
        Ok(Bytes::from_static(b"abc"))
    }
}

type ReadTask = JoinHandle<Result<Option<Bytes>, &'static str>>;

fn reader(cache: &Arc<Cache>, content: ContentId, store: &Arc<HeldStore>, gate: &Arc<Semaphore>) -> ReadTask {
    let (cache, store, gate) = (Arc::clone(cache), Arc::clone(store), Arc::clone(gate));
    tokio::spawn(async move { cache.body(&wanted(content), || store.read(&gate)).await })
}

/// Runs every task until it waits.
async fn run_tasks() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn read_now(cache: &Cache, content: ContentId) -> Bytes {
    let load = || async { Ok::<_, &str>(Bytes::from_static(b"abc")) };
    cache.body(&wanted(content), load).await.expect("read").expect("cacheable")
}

fn unreachable_load() -> std::future::Ready<Result<Bytes, &'static str>> {
    panic!("the body is cached")
}

#[tokio::test]
async fn concurrent_readers_cause_one_read() {
    let (cache, store, gate) = (cache(None), Arc::new(HeldStore::default()), Arc::new(Semaphore::new(0)));
    let content = fresh();
    let readers: Vec<ReadTask> = (0..100).map(|_| reader(&cache, content, &store, &gate)).collect();
    run_tasks().await;
    gate.add_permits(1);
    for read in readers {
        assert_eq!(read.await.expect("ran").expect("read").expect("cacheable"), "abc");
    }
    assert_eq!(store.reads(), 1);
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries), (99, 1, 1));
}

#[tokio::test]
async fn follower_takes_over_from_a_dropped_leader() {
    let (cache, store, gate) = (cache(None), Arc::new(HeldStore::default()), Arc::new(Semaphore::new(0)));
    let content = fresh();
    let leader = reader(&cache, content, &store, &gate);
    store.started.notified().await;
    let followers: Vec<ReadTask> = (0..10).map(|_| reader(&cache, content, &store, &gate)).collect();
    run_tasks().await;
    leader.abort();
    store.started.notified().await;
    assert_eq!(store.reads(), 2, "one follower reads now");
    gate.add_permits(1);
    for read in followers {
        assert_eq!(read.await.expect("ran").expect("read").expect("cacheable"), "abc");
    }
    assert_eq!(store.reads(), 2);
}

#[tokio::test]
async fn last_reader_reads_after_every_leader_was_dropped() {
    let (cache, store, gate) = (cache(None), Arc::new(HeldStore::default()), Arc::new(Semaphore::new(0)));
    let content = fresh();
    let mut readers: Vec<ReadTask> = (0..20).map(|_| reader(&cache, content, &store, &gate)).collect();
    let last = readers.pop().expect("twenty");
    for read in readers {
        run_tasks().await;
        read.abort();
    }
    run_tasks().await;
    gate.add_permits(1);
    assert_eq!(last.await.expect("ran").expect("read").expect("cacheable"), "abc");
}

#[tokio::test]
async fn failed_leader_does_not_fail_its_followers() {
    let (cache, store) = (cache(None), Arc::new(HeldStore::default()));
    let (broken, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(100)));
    let content = fresh();
    let leader = reader(&cache, content, &store, &broken);
    store.started.notified().await;
    let followers: Vec<ReadTask> = (0..10).map(|_| reader(&cache, content, &store, &open)).collect();
    run_tasks().await;
    broken.close();
    assert_eq!(leader.await.expect("ran"), Err("broken"));
    for read in followers {
        assert_eq!(read.await.expect("ran").expect("read").expect("cacheable"), "abc");
    }
}

#[tokio::test]
async fn followers_of_a_failed_leader_read_concurrently() {
    let (cache, store) = (cache(None), Arc::new(HeldStore::default()));
    let (broken, closed) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let content = fresh();
    let leader = reader(&cache, content, &store, &broken);
    store.started.notified().await;
    let followers: Vec<ReadTask> = (0..10).map(|_| reader(&cache, content, &store, &closed)).collect();
    run_tasks().await;
    broken.close();
    assert_eq!(leader.await.expect("ran"), Err("broken"));
    run_tasks().await;
    assert_eq!(store.reads(), 11, "all followers read concurrently");
    closed.add_permits(10);
    for read in followers {
        assert!(read.await.expect("ran").is_ok());
    }
}

#[tokio::test]
async fn entry_expires_with_its_object() {
    let clock = clock();
    let cache = Cache::new(CacheParts { settings: SETTINGS, shared: None, clock: clock.clone() });
    let content = fresh();
    let wanted = BodyRequest { expires_at: Some(Timestamp::from_millis(1_002_000)), ..wanted(content) };
    let load = || async { Ok::<_, &str>(Bytes::from_static(b"abc")) };
    cache.body(&wanted, load).await.expect("read");
    clock.advance(Duration::from_secs(1));
    cache.body(&wanted, unreachable_load).await.expect("cached");
    clock.advance(Duration::from_secs(1));
    assert_eq!(cache.memory.find(content), None);
    cache.body(&wanted, load).await.expect("read");
    assert_eq!(cache.memory.find(content), None, "the object has expired");
}

#[tokio::test(start_paused = true)]
async fn unread_entries_are_removed_when_they_expire() {
    let clock = clock();
    let cache = Arc::new(Cache::new(CacheParts { settings: SETTINGS, shared: None, clock: clock.clone() }));
    read_now(&cache, fresh()).await;
    clock.advance(SETTINGS.ttl / 2);
    read_now(&cache, fresh()).await;
    clock.advance(SETTINGS.ttl / 2);
    assert_eq!(cache.stats().entries, 2);
    let finished = tokio::time::timeout(SETTINGS.ttl + Duration::from_secs(1), cache.run_maintenance()).await;
    assert!(finished.is_err(), "maintenance does not return");
    assert_eq!(cache.stats().entries, 1);
}

#[tokio::test]
async fn forgotten_content_is_read_again() {
    let cache = cache(None);
    let content = fresh();
    read_now(&cache, content).await;
    cache.forget(&[content]);
    assert_eq!(cache.memory.find(content), None);
    read_now(&cache, content).await;
    assert_eq!(cache.stats().misses, 2);
}

#[tokio::test]
async fn bytes_being_fetched_are_bounded() {
    let settings = CacheSettings { max_bytes: 64, object_bytes_max: 8, ..SETTINGS };
    let cache = Arc::new(Cache::new(CacheParts { settings, shared: None, clock: clock() }));
    let (store, gate) = (Arc::new(HeldStore::default()), Arc::new(Semaphore::new(0)));
    let readers = [fresh(), fresh()].map(|content| reader(&cache, content, &store, &gate));
    run_tasks().await;
    assert_eq!(cache.body(&wanted(fresh()), || store.read(&gate)).await, Ok(None), "the read bypasses the cache");
    gate.add_permits(2);
    for read in readers {
        assert!(read.await.expect("ran").expect("read").is_some());
    }
    assert_eq!(read_now(&cache, fresh()).await, "abc", "permits are free again");
}

#[tokio::test]
async fn body_read_by_one_instance_is_found_by_another() {
    let shared: Arc<dyn Tier> = Arc::new(MemoryTier::new(1 << 20, 1 << 16, clock()));
    let (one, other) = (cache(Some(Arc::clone(&shared))), cache(Some(Arc::clone(&shared))));
    let content = fresh();
    let maintenance = tokio::spawn({
        let one = Arc::clone(&one);
        async move { one.run_maintenance().await }
    });
    read_now(&one, content).await;
    run_tasks().await;
    assert_eq!(other.body(&wanted(content), unreachable_load).await.expect("cached").expect("cacheable"), "abc");
    one.forget(&[content]);
    run_tasks().await;
    assert_eq!(shared.get(content, 3).await, Ok(None));
    maintenance.abort();
}

/// A tier that fails every call with one error and counts reads.
struct FailingTier(TierError, AtomicUsize);

#[async_trait]
impl Tier for FailingTier {
    fn name(&self) -> &'static str {
        "failing"
    }

    async fn get(&self, _content: ContentId, _size_bytes: u64) -> Result<Option<Bytes>, TierError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Err(self.0.clone())
    }

    async fn put(&self, _entries: &[CacheEntry]) -> Result<(), TierError> {
        Err(self.0.clone())
    }

    async fn remove(&self, _contents: &[ContentId]) -> Result<(), TierError> {
        Err(self.0.clone())
    }
}

#[tokio::test]
async fn failing_shared_tier_does_not_fail_reads() {
    for (error, outcome) in [
        (TierError::Skipped, "skipped"),
        (TierError::Away("gone".to_owned()), "error"),
        (TierError::Corrupt("garbage"), "corrupt"),
    ] {
        let tier = Arc::new(FailingTier(error, AtomicUsize::new(0)));
        let cache = cache(Some(tier.clone()));
        let content = fresh();
        for _ in 0..2 {
            assert_eq!(read_now(&cache, content).await, "abc");
        }
        assert_eq!((tier.1.load(Ordering::SeqCst), cache.metrics.count("failing", outcome)), (1, 1));
    }
}

#[test]
fn write_behind_queue_is_bounded() {
    let cache = cache(Some(Arc::new(FailingTier(TierError::Skipped, AtomicUsize::new(0)))));
    for _ in 0..10_000 {
        cache.forget(&[fresh()]);
    }
    assert!(!cache.takes(0) && cache.takes(1) && !cache.takes((1 << 16) + 1));
}
