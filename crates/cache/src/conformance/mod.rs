//! What every tier must do, as facts that are stamped on each of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use s3o_model::ids::ContentId;
use uuid::Uuid;

use crate::tier::{Entry, FORGET_MAX, Tier};

/// Makes one test per fact. Takes a function without arguments whose future gives a tier within
/// reach and a guard to keep while it is used.
macro_rules! conformance {
    ($subject:path) => {
        $crate::conformance::conformance! { $subject;
            what_was_kept_is_found, what_was_not_kept_is_missed, what_was_forgotten_is_missed,
            forgetting_again_is_harmless, a_thousand_are_forgotten_at_once, neighbours_stay,
            keeping_again_keeps_the_last, an_entry_ends_with_its_time, another_length_is_not_found,
            bytes_of_any_kind_read_back,
        }
    };
    ($subject:path; $($fact:ident,)+) => {
        $(#[tokio::test]
        async fn $fact() {
            let (tier, _guard) = $subject().await;
            $crate::conformance::$fact(tier.as_ref()).await;
        })+
    };
}
pub(crate) use conformance;

const MINUTE: Duration = Duration::from_mins(1);

/// A content that no other fact uses.
pub(crate) fn fresh() -> ContentId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let process = u128::from(std::process::id()) << 64;
    ContentId::new(Uuid::from_u128(process | u128::from(NEXT.fetch_add(1, Ordering::Relaxed))))
}

pub(crate) fn entry(content: ContentId, body: &'static [u8], time: Duration) -> Entry {
    Entry { content, body: Bytes::from_static(body), time }
}

async fn kept(tier: &dyn Tier, body: &'static [u8]) -> ContentId {
    let content = fresh();
    tier.keep(&[entry(content, body, MINUTE)]).await.expect("kept");
    content
}

async fn found(tier: &dyn Tier, content: ContentId, size_bytes: u64) -> Option<Bytes> {
    tier.get(content, size_bytes).await.expect("an answer")
}

pub(crate) async fn what_was_kept_is_found(tier: &dyn Tier) {
    let content = kept(tier, b"abc").await;
    for _ in 0..2 {
        assert_eq!(found(tier, content, 3).await.expect("kept"), "abc");
    }
}

pub(crate) async fn what_was_not_kept_is_missed(tier: &dyn Tier) {
    assert_eq!(found(tier, fresh(), 3).await, None);
}

pub(crate) async fn what_was_forgotten_is_missed(tier: &dyn Tier) {
    let content = kept(tier, b"abc").await;
    tier.forget(&[content]).await.expect("forgotten");
    assert_eq!(found(tier, content, 3).await, None);
}

pub(crate) async fn forgetting_again_is_harmless(tier: &dyn Tier) {
    let content = kept(tier, b"abc").await;
    for _ in 0..2 {
        tier.forget(&[content, fresh()]).await.expect("forgotten");
    }
    assert_eq!(found(tier, content, 3).await, None);
}

pub(crate) async fn a_thousand_are_forgotten_at_once(tier: &dyn Tier) {
    let contents: Vec<ContentId> = (0..FORGET_MAX).map(|_| fresh()).collect();
    let entries: Vec<Entry> = contents.iter().map(|content| entry(*content, b"x", MINUTE)).collect();
    tier.keep(&entries).await.expect("kept");
    tier.forget(&contents).await.expect("forgotten");
    for content in contents {
        assert_eq!(found(tier, content, 1).await, None);
    }
}

pub(crate) async fn neighbours_stay(tier: &dyn Tier) {
    let (gone, stays) = (kept(tier, b"gone").await, kept(tier, b"stays").await);
    tier.forget(&[gone]).await.expect("forgotten");
    assert_eq!(found(tier, stays, 5).await.expect("kept"), "stays");
}

pub(crate) async fn keeping_again_keeps_the_last(tier: &dyn Tier) {
    let content = kept(tier, b"abc").await;
    tier.keep(&[entry(content, b"xyz", MINUTE)]).await.expect("kept");
    assert_eq!(found(tier, content, 3).await.expect("kept"), "xyz");
}

pub(crate) async fn an_entry_ends_with_its_time(tier: &dyn Tier) {
    let (short, long) = (fresh(), fresh());
    let entries = [entry(short, b"abc", Duration::from_millis(50)), entry(long, b"abc", MINUTE)];
    tier.keep(&entries).await.expect("kept");
    tokio::time::sleep(Duration::from_millis(80)).await;
    assert_eq!((found(tier, short, 3).await, found(tier, long, 3).await.is_some()), (None, true));
}

pub(crate) async fn another_length_is_not_found(tier: &dyn Tier) {
    let content = kept(tier, b"abc").await;
    assert!(!matches!(tier.get(content, 4).await, Ok(Some(_))));
}

pub(crate) async fn bytes_of_any_kind_read_back(tier: &dyn Tier) {
    let content = fresh();
    let body: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
    let entry = Entry { content, body: body.clone().into(), time: MINUTE };
    tier.keep(&[entry]).await.expect("kept");
    assert_eq!(found(tier, content, 300_000).await.expect("kept"), body);
}

/// The clock of the machine moves by itself, so that entries of memory end as those of Redis do.
mod memory {
    use crate::memory::Memory;
    use s3o_model::clock::SystemClock;
    use std::sync::Arc;

    fn subject() -> std::future::Ready<(Arc<Memory>, ())> {
        std::future::ready((Arc::new(Memory::new(64 << 20, 1 << 20, Arc::new(SystemClock))), ()))
    }

    super::conformance!(self::subject);
}

mod redis {
    super::conformance!(crate::redis::tests::reachable);
}
