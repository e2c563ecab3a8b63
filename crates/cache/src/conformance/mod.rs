//! Conformance tests that every tier must pass.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use s3o_model::ids::ContentId;
use uuid::Uuid;

use crate::tier::{CacheEntry, REMOVE_MAX, Tier};

/// Generates one test per function of this module. Takes an async function without arguments that returns
/// a reachable tier and a guard for its lifetime.
macro_rules! conformance {
    ($subject:path) => {
        $crate::conformance::conformance! { $subject;
            stored_body_is_found, unknown_content_is_a_miss, removed_body_is_a_miss,
            removing_again_succeeds, a_thousand_bodies_are_removed_in_one_call, other_bodies_stay,
            last_stored_body_wins, entry_expires_after_its_ttl, wrong_length_is_not_found,
            binary_body_is_found_unchanged,
        }
    };
    ($subject:path; $($test:ident,)+) => {
        $(#[tokio::test]
        async fn $test() {
            let (tier, _guard) = $subject().await;
            $crate::conformance::$test(tier.as_ref()).await;
        })+
    };
}
pub(crate) use conformance;

const MINUTE: Duration = Duration::from_mins(1);

/// A content ID that no other test uses.
pub(crate) fn fresh() -> ContentId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let process = u128::from(std::process::id()) << 64;
    ContentId::new(Uuid::from_u128(process | u128::from(NEXT.fetch_add(1, Ordering::Relaxed))))
}

pub(crate) fn entry(content: ContentId, body: &'static [u8], ttl: Duration) -> CacheEntry {
    CacheEntry { content, body: Bytes::from_static(body), ttl }
}

async fn stored(tier: &dyn Tier, body: &'static [u8]) -> ContentId {
    let content = fresh();
    tier.put(&[entry(content, body, MINUTE)]).await.expect("stored");
    content
}

async fn found(tier: &dyn Tier, content: ContentId, size_bytes: u64) -> Option<Bytes> {
    tier.get(content, size_bytes).await.expect("an answer")
}

pub(crate) async fn stored_body_is_found(tier: &dyn Tier) {
    let content = stored(tier, b"abc").await;
    for _ in 0..2 {
        assert_eq!(found(tier, content, 3).await.expect("stored"), "abc");
    }
}

pub(crate) async fn unknown_content_is_a_miss(tier: &dyn Tier) {
    assert_eq!(found(tier, fresh(), 3).await, None);
}

pub(crate) async fn removed_body_is_a_miss(tier: &dyn Tier) {
    let content = stored(tier, b"abc").await;
    tier.remove(&[content]).await.expect("removed");
    assert_eq!(found(tier, content, 3).await, None);
}

pub(crate) async fn removing_again_succeeds(tier: &dyn Tier) {
    let content = stored(tier, b"abc").await;
    for _ in 0..2 {
        tier.remove(&[content, fresh()]).await.expect("removed");
    }
    assert_eq!(found(tier, content, 3).await, None);
}

pub(crate) async fn a_thousand_bodies_are_removed_in_one_call(tier: &dyn Tier) {
    let contents: Vec<ContentId> = (0..REMOVE_MAX).map(|_| fresh()).collect();
    let entries: Vec<CacheEntry> = contents.iter().map(|content| entry(*content, b"x", MINUTE)).collect();
    tier.put(&entries).await.expect("stored");
    tier.remove(&contents).await.expect("removed");
    for content in contents {
        assert_eq!(found(tier, content, 1).await, None);
    }
}

pub(crate) async fn other_bodies_stay(tier: &dyn Tier) {
    let (gone, stays) = (stored(tier, b"gone").await, stored(tier, b"stays").await);
    tier.remove(&[gone]).await.expect("removed");
    assert_eq!(found(tier, stays, 5).await.expect("stored"), "stays");
}

pub(crate) async fn last_stored_body_wins(tier: &dyn Tier) {
    let content = stored(tier, b"abc").await;
    tier.put(&[entry(content, b"xyz", MINUTE)]).await.expect("stored");
    assert_eq!(found(tier, content, 3).await.expect("stored"), "xyz");
}

pub(crate) async fn entry_expires_after_its_ttl(tier: &dyn Tier) {
    let (short, long) = (fresh(), fresh());
    let entries = [entry(short, b"abc", Duration::from_millis(50)), entry(long, b"abc", MINUTE)];
    tier.put(&entries).await.expect("stored");
    tokio::time::sleep(Duration::from_millis(80)).await;
    assert_eq!((found(tier, short, 3).await, found(tier, long, 3).await.is_some()), (None, true));
}

pub(crate) async fn wrong_length_is_not_found(tier: &dyn Tier) {
    let content = stored(tier, b"abc").await;
    assert!(!matches!(tier.get(content, 4).await, Ok(Some(_))));
}

pub(crate) async fn binary_body_is_found_unchanged(tier: &dyn Tier) {
    let content = fresh();
    let body: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
    let entry = CacheEntry { content, body: body.clone().into(), ttl: MINUTE };
    tier.put(&[entry]).await.expect("stored");
    assert_eq!(found(tier, content, 300_000).await.expect("stored"), body);
}

/// Uses the system clock, so that entries in memory expire as in Redis.
mod memory {
    use crate::memory::MemoryTier;
    use s3o_model::clock::SystemClock;
    use std::sync::Arc;

    fn subject() -> std::future::Ready<(Arc<MemoryTier>, ())> {
        std::future::ready((Arc::new(MemoryTier::new(64 << 20, 1 << 20, Arc::new(SystemClock))), ()))
    }

    super::conformance!(self::subject);
}

mod redis {
    super::conformance!(crate::redis::tests::reachable);
}
