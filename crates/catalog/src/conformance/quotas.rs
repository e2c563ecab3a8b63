//! Facts about room.

use s3o_model::conditions::WriteCondition;

use super::refused;
use super::scene::{Scene, at_once, backend};
use crate::{Intents, Late, Quotas, Verdict};

/// The last byte fits and the one after it does not.
pub async fn room_ends_at_the_byte(scene: &Scene) {
    let bucket = scene.bucket("byte").await;
    scene.attach("disk", Some(10)).await;
    scene.put(bucket, "used", 3).await;
    let orphan = scene.staged(bucket, "orphan", 2).await;
    scene.catalog.drop_write(orphan.write, Late::No).await.expect("dropped");
    scene.staged(bucket, "reserved", 4).await;
    refused(scene.try_stage(&scene.intent(bucket, "a", 2)).await, Verdict::NoRoom);
    assert_eq!(scene.books("disk").await.available_bytes(), Some(1));
    scene.staged(bucket, "a", 1).await;
    refused(scene.try_stage(&scene.intent(bucket, "b", 1)).await, Verdict::NoRoom);
    scene.staged(bucket, "empty", 0).await;
    assert_eq!(scene.booked().await, (3, 2, 5));
}

/// Room comes back only when bytes are gone, not when they are doomed.
pub async fn doomed_bytes_still_take_room(scene: &Scene) {
    let bucket = scene.bucket("doomed").await;
    scene.attach("disk", Some(10)).await;
    scene.put(bucket, "a", 10).await;
    assert!(scene.delete(bucket, "a").await);
    refused(scene.try_stage(&scene.intent(bucket, "b", 1)).await, Verdict::NoRoom);
    scene.clean_up().await;
    scene.put(bucket, "b", 10).await;
}

/// A limit may be raised, lowered below what is there, and lifted.
pub async fn a_limit_can_change(scene: &Scene) {
    let bucket = scene.bucket("limit").await;
    let disk = scene.attach("disk", Some(10)).await;
    let intent = scene.staged(bucket, "a", 10).await;
    scene.catalog.set_limit(&disk, Some(5)).await.expect("lowered");
    refused(scene.try_stage(&scene.intent(bucket, "b", 1)).await, Verdict::NoRoom);
    scene.commit(&intent, WriteCondition::None).await.expect("its room was reserved before");
    assert_eq!(scene.books("disk").await.available_bytes(), Some(0));
    scene.catalog.set_limit(&disk, None).await.expect("lifted");
    scene.put(bucket, "b", 1 << 50).await;
    assert_eq!(scene.books("disk").await.limit_bytes, None);
}

/// A backend whose books were never opened has no room.
pub async fn no_books_no_room(scene: &Scene) {
    let bucket = scene.bucket("books").await;
    crate::Identities::known_backend(&scene.catalog, &backend("fresh")).await.expect("entered");
    let intent = s3o_model::intent::Intent { backend: backend("fresh"), ..scene.intent(bucket, "a", 0) };
    refused(scene.try_stage(&intent).await, Verdict::NoRoom);
}

/// What fits into the whole of a limit is taken, however its stripes share it, and what they hold adds up to it.
pub async fn a_limit_is_shared_anew(scene: &Scene) {
    let bucket = scene.bucket("shares").await;
    let disk = scene.attach("disk", Some(1_000)).await;
    let sum = "SELECT CAST(sum(share_bytes) AS BIGINT) FROM backend_quotas WHERE backend_name = 'disk'";
    let over = "SELECT count(*) FROM backend_quotas WHERE used_bytes + orphan_bytes + reserved_bytes > share_bytes";
    for (number, size) in [600, 3, 300, 96, 1].into_iter().enumerate() {
        scene.put(bucket, &number.to_string(), size).await;
        assert_eq!((scene.number(sum).await, scene.number(over).await), (1_000, 0));
    }
    refused(scene.try_stage(&scene.intent(bucket, "b", 1)).await, Verdict::NoRoom);
    assert_eq!(scene.books("disk").await.limit_bytes, Some(1_000));
    scene.catalog.set_limit(&disk, Some(77)).await.expect("lowered");
    assert_eq!((scene.books("disk").await.limit_bytes, scene.number(sum).await), (Some(77), 77));
    scene.catalog.set_limit(&disk, Some(1_500)).await.expect("raised");
    scene.put(bucket, "b", 500).await;
    assert_eq!((scene.books("disk").await.available_bytes(), scene.number(over).await), (Some(0), 0));
}

/// However many reserve at once, a limit is never exceeded by a byte, nor a byte of it wasted.
pub async fn a_limit_holds_against_many(scene: &Scene) {
    const LIMIT: u64 = 1_000;
    let bucket = scene.bucket("many").await;
    scene.attach("disk", Some(LIMIT)).await;
    for round in 0..5 {
        let stagers = (0..64).map(|number| {
            let scene = scene.clone();
            async move {
                let intent = scene.intent(bucket, &format!("r{round}-{number}"), 31);
                match scene.try_stage(&intent).await {
                    Ok(_) => Some(intent),
                    Err(error) => {
                        assert_eq!(error.verdict(), Some(Verdict::NoRoom), "{error}");
                        None
                    }
                }
            }
        });
        let staged: Vec<_> = at_once(stagers.collect()).await.into_iter().flatten().collect();
        assert_eq!(staged.len() as u64, LIMIT / 31);
        assert_eq!(scene.booked().await.2, LIMIT / 31 * 31);
        for intent in staged {
            scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
        }
        scene.clean_up().await;
    }
}
