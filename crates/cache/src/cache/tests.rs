//! Readers at once, tiers that fail, entries that end.

use super::{Cache, Parts, Settings, Wanted};
use crate::conformance::fresh;
use crate::memory::Memory;
use crate::tier::{Entry, Tier, TierError};
use async_trait::async_trait;
use bytes::Bytes;
use s3o_model::clock::{ManualClock, Timestamp};
use s3o_model::ids::ContentId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

const SETTINGS: Settings = Settings { max_bytes: 1 << 20, object_bytes_max: 1 << 16, ttl: Duration::from_mins(5) };

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_000_000)))
}

fn cache(shared: Option<Arc<dyn Tier>>) -> Arc<Cache> {
    Arc::new(Cache::new(Parts { settings: SETTINGS, shared, clock: clock() }))
}

fn wanted(content: ContentId) -> Wanted {
    Wanted { content, size_bytes: 3, expires_at: None }
}

/// A place for bytes that counts who comes, and lets them wait.
#[derive(Default)]
struct Store {
    reads: AtomicUsize,
    came: Notify,
}

impl Store {
    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    async fn read(&self, gate: &Semaphore) -> Result<Bytes, &'static str> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.came.notify_one();
        gate.acquire().await.map_err(|_| "broken")?.forget();
        Ok(Bytes::from_static(b"abc"))
    }
}

type Read = JoinHandle<Result<Option<Bytes>, &'static str>>;

fn reader(cache: &Arc<Cache>, content: ContentId, store: &Arc<Store>, gate: &Arc<Semaphore>) -> Read {
    let (cache, store, gate) = (Arc::clone(cache), Arc::clone(store), Arc::clone(gate));
    tokio::spawn(async move { cache.body(&wanted(content), || store.read(&gate)).await })
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn at_once(cache: &Cache, content: ContentId) -> Bytes {
    let load = || async { Ok::<_, &str>(Bytes::from_static(b"abc")) };
    cache.body(&wanted(content), load).await.expect("read").expect("room")
}

fn unreachable_load() -> std::future::Ready<Result<Bytes, &'static str>> {
    panic!("the bytes are at hand")
}

#[tokio::test]
async fn many_readers_cause_one_read() {
    let (cache, store, gate) = (cache(None), Arc::new(Store::default()), Arc::new(Semaphore::new(0)));
    let content = fresh();
    let readers: Vec<Read> = (0..100).map(|_| reader(&cache, content, &store, &gate)).collect();
    settle().await;
    gate.add_permits(1);
    for read in readers {
        assert_eq!(read.await.expect("ran").expect("read").expect("room"), "abc");
    }
    assert_eq!(store.reads(), 1);
    let standing = cache.standing();
    assert_eq!((standing.hits, standing.misses, standing.entries), (99, 1, 1));
}

#[tokio::test]
async fn a_leader_that_hangs_up_leaves_its_place_to_a_follower() {
    let (cache, store, gate) = (cache(None), Arc::new(Store::default()), Arc::new(Semaphore::new(0)));
    let content = fresh();
    let leader = reader(&cache, content, &store, &gate);
    store.came.notified().await;
    let followers: Vec<Read> = (0..10).map(|_| reader(&cache, content, &store, &gate)).collect();
    settle().await;
    leader.abort();
    store.came.notified().await;
    assert_eq!(store.reads(), 2, "one of them reads now");
    gate.add_permits(1);
    for read in followers {
        assert_eq!(read.await.expect("ran").expect("read").expect("room"), "abc");
    }
    assert_eq!(store.reads(), 2);
}

#[tokio::test]
async fn every_leader_may_hang_up_and_the_last_reader_still_reads() {
    let (cache, store, gate) = (cache(None), Arc::new(Store::default()), Arc::new(Semaphore::new(0)));
    let content = fresh();
    let mut readers: Vec<Read> = (0..20).map(|_| reader(&cache, content, &store, &gate)).collect();
    let last = readers.pop().expect("twenty");
    for read in readers {
        settle().await;
        read.abort();
    }
    settle().await;
    gate.add_permits(1);
    assert_eq!(last.await.expect("ran").expect("read").expect("room"), "abc");
}

#[tokio::test]
async fn a_leader_that_fails_fails_alone() {
    let (cache, store) = (cache(None), Arc::new(Store::default()));
    let (broken, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(100)));
    let content = fresh();
    let leader = reader(&cache, content, &store, &broken);
    store.came.notified().await;
    let followers: Vec<Read> = (0..10).map(|_| reader(&cache, content, &store, &open)).collect();
    settle().await;
    broken.close();
    assert_eq!(leader.await.expect("ran"), Err("broken"));
    for read in followers {
        assert_eq!(read.await.expect("ran").expect("read").expect("room"), "abc");
    }
}

#[tokio::test]
async fn followers_of_a_failed_leader_do_not_wait_for_each_other() {
    let (cache, store) = (cache(None), Arc::new(Store::default()));
    let (broken, closed) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let content = fresh();
    let leader = reader(&cache, content, &store, &broken);
    store.came.notified().await;
    let followers: Vec<Read> = (0..10).map(|_| reader(&cache, content, &store, &closed)).collect();
    settle().await;
    broken.close();
    assert_eq!(leader.await.expect("ran"), Err("broken"));
    settle().await;
    assert_eq!(store.reads(), 11, "all of them read side by side");
    closed.add_permits(10);
    for read in followers {
        assert!(read.await.expect("ran").is_ok());
    }
}

#[tokio::test]
async fn a_body_is_kept_no_longer_than_its_object_exists() {
    let clock = clock();
    let cache = Cache::new(Parts { settings: SETTINGS, shared: None, clock: clock.clone() });
    let content = fresh();
    let wanted = Wanted { expires_at: Some(Timestamp::from_millis(1_002_000)), ..wanted(content) };
    let load = || async { Ok::<_, &str>(Bytes::from_static(b"abc")) };
    cache.body(&wanted, load).await.expect("read");
    clock.advance(Duration::from_secs(1));
    cache.body(&wanted, unreachable_load).await.expect("at hand");
    clock.advance(Duration::from_secs(1));
    assert_eq!(cache.memory.find(content), None);
    cache.body(&wanted, load).await.expect("read");
    assert_eq!(cache.memory.find(content), None, "it has expired already");
}

#[tokio::test(start_paused = true)]
async fn entries_that_nobody_asks_for_end_with_their_time() {
    let clock = clock();
    let cache = Arc::new(Cache::new(Parts { settings: SETTINGS, shared: None, clock: clock.clone() }));
    at_once(&cache, fresh()).await;
    clock.advance(SETTINGS.ttl / 2);
    at_once(&cache, fresh()).await;
    clock.advance(SETTINGS.ttl / 2);
    assert_eq!(cache.standing().entries, 2);
    let swept = tokio::time::timeout(SETTINGS.ttl + Duration::from_secs(1), cache.upkeep()).await;
    assert!(swept.is_err(), "it goes on for ever");
    assert_eq!(cache.standing().entries, 1);
}

#[tokio::test]
async fn what_is_forgotten_is_read_again() {
    let cache = cache(None);
    let content = fresh();
    at_once(&cache, content).await;
    cache.forget(&[content]);
    assert_eq!(cache.memory.find(content), None);
    at_once(&cache, content).await;
    assert_eq!(cache.standing().misses, 2);
}

#[tokio::test]
async fn so_much_is_fetched_at_a_time_and_no_more() {
    let settings = Settings { max_bytes: 64, object_bytes_max: 8, ..SETTINGS };
    let cache = Arc::new(Cache::new(Parts { settings, shared: None, clock: clock() }));
    let (store, gate) = (Arc::new(Store::default()), Arc::new(Semaphore::new(0)));
    let readers = [fresh(), fresh()].map(|content| reader(&cache, content, &store, &gate));
    settle().await;
    assert_eq!(cache.body(&wanted(fresh()), || store.read(&gate)).await, Ok(None), "read past the cache");
    gate.add_permits(2);
    for read in readers {
        assert!(read.await.expect("ran").expect("read").is_some());
    }
    assert_eq!(at_once(&cache, fresh()).await, "abc", "there is room again");
}

#[tokio::test]
async fn another_instance_finds_what_one_has_read() {
    let shared: Arc<dyn Tier> = Arc::new(Memory::new(1 << 20, 1 << 16, clock()));
    let (one, other) = (cache(Some(Arc::clone(&shared))), cache(Some(Arc::clone(&shared))));
    let content = fresh();
    let upkeep = tokio::spawn({
        let one = Arc::clone(&one);
        async move { one.upkeep().await }
    });
    at_once(&one, content).await;
    settle().await;
    assert_eq!(other.body(&wanted(content), unreachable_load).await.expect("at hand").expect("room"), "abc");
    one.forget(&[content]);
    settle().await;
    assert_eq!(shared.get(content, 3).await, Ok(None));
    upkeep.abort();
}

/// A tier that answers one thing, whatever it is asked.
struct Stubborn(TierError, AtomicUsize);

#[async_trait]
impl Tier for Stubborn {
    fn name(&self) -> &'static str {
        "stubborn"
    }

    async fn get(&self, _content: ContentId, _size_bytes: u64) -> Result<Option<Bytes>, TierError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Err(self.0.clone())
    }

    async fn keep(&self, _entries: &[Entry]) -> Result<(), TierError> {
        Err(self.0.clone())
    }

    async fn forget(&self, _contents: &[ContentId]) -> Result<(), TierError> {
        Err(self.0.clone())
    }
}

#[tokio::test]
async fn a_shared_tier_that_fails_is_gone_without() {
    for (error, outcome) in [
        (TierError::NotAsked, "skipped"),
        (TierError::Away("gone".to_owned()), "error"),
        (TierError::Wrong("garbage"), "corrupt"),
    ] {
        let tier = Arc::new(Stubborn(error, AtomicUsize::new(0)));
        let cache = cache(Some(tier.clone()));
        let content = fresh();
        for _ in 0..2 {
            assert_eq!(at_once(&cache, content).await, "abc");
        }
        assert_eq!((tier.1.load(Ordering::SeqCst), cache.metrics.count("stubborn", outcome)), (1, 1));
    }
}

#[test]
fn an_errand_that_nobody_runs_waits_within_bounds() {
    let cache = cache(Some(Arc::new(Stubborn(TierError::NotAsked, AtomicUsize::new(0)))));
    for _ in 0..10_000 {
        cache.forget(&[fresh()]);
    }
    assert!(!cache.takes(0) && cache.takes(1) && !cache.takes((1 << 16) + 1));
}
