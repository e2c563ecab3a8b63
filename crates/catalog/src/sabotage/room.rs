//! What keeps writes within their backend's limit, and away from backends that are closed.

use s3o_model::conditions::WriteCondition;

use super::Cut::Words;
use super::{Told, broken, safeties, told};
use crate::conformance::scene::{Scene, backend, unannounced};
use crate::{CommitPut, Error, Identities, Objects, Quotas};

const OVER: &str = "the limit was exceeded";
const FROZEN: &str = "a frozen backend took a write";

safeties! { [sqlite]
    room_is_reserved_within_the_limit by two_writes_want_the_last_room: "stage",
        [Words("<= share_bytes", "<= share_bytes + 1000")], [OVER];
    unannounced_bytes_stay_within_the_limit by two_unannounced_writes_want_the_last_room: "commit_put",
        [Words("<= share_bytes", "<= share_bytes + 1000")], [OVER];
    a_frozen_backend_takes_no_intent by a_write_comes_after_the_freeze: "stage",
        [Words(" AND frozen_reason IS NULL", "")], [FROZEN];
    a_frozen_backend_takes_no_unannounced_bytes by an_unannounced_write_comes_after_the_freeze: "commit_put",
        [Words(" AND frozen_reason IS NULL", "")], [FROZEN];
    a_reservation_is_booked by a_write_begins: "stage",
        [Words("reserved_bytes = reserved_bytes + $2", "reserved_bytes = reserved_bytes + $2 - $2")], [broken::BOOKS];
}

async fn is_over(scene: &Scene) -> Told {
    let books = scene.books("disk").await;
    let taken = books.used_bytes + books.orphan_bytes + books.reserved_bytes;
    told(books.limit_bytes.is_some_and(|limit| taken > limit), OVER)
}

async fn two_writes_want_the_last_room(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.catalog.set_limit(&backend("disk"), Some(9)).await.expect("set");
    for name in ["a", "b"] {
        scene.try_stage(&scene.intent(bucket, name, 5)).await.map(drop).unwrap_or_default();
    }
    is_over(scene).await
}

/// Commits bytes of which no row knew.
async fn commit_unannounced(scene: &Scene, bucket: s3o_model::ids::BucketId, name: &str) -> Result<(), Error> {
    let intent = scene.intent(bucket, name, 5);
    let put = CommitPut { landed: unannounced(&intent), ..scene.put_of(&intent, WriteCondition::None) };
    scene.catalog.commit_put(put).await.map(drop)
}

async fn two_unannounced_writes_want_the_last_room(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.catalog.set_limit(&backend("disk"), Some(9)).await.expect("set");
    for name in ["a", "b"] {
        commit_unannounced(scene, bucket, name).await.unwrap_or_default();
    }
    is_over(scene).await
}

async fn a_write_comes_after_the_freeze(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.catalog.set_frozen(&backend("disk"), Some("another disk")).await.expect("frozen");
    told(scene.try_stage(&scene.intent(bucket, "a", 5)).await.is_ok(), FROZEN)
}

async fn an_unannounced_write_comes_after_the_freeze(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.catalog.set_frozen(&backend("disk"), Some("another disk")).await.expect("frozen");
    told(commit_unannounced(scene, bucket, "a").await.is_ok(), FROZEN)
}

async fn a_write_begins(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.staged(bucket, "a", 5).await;
    Told::new()
}
