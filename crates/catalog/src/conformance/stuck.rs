//! Facts about deletions that do not end.

use std::time::Duration;

use s3o_model::ids::ClaimToken;

use super::scene::Scene;
use crate::{StuckObjects, params};

const STUCK: Duration = Duration::from_hours(2);

/// Marks every object as one that a worker has begun to delete.
async fn begin(scene: &Scene) -> ClaimToken {
    const SQL: &str = "UPDATE objects SET deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now, \
         token = $1 WHERE deletion_status = 'NOT_EXPIRED'";
    let token = scene.token();
    scene.change(SQL, params![token]).await;
    token
}

async fn reset(scene: &Scene, limit: usize) -> Vec<(String, String)> {
    let reset = scene.catalog.reset_stuck(STUCK, limit).await.expect("a look");
    reset.into_iter().map(|object| (object.bucket, object.key)).collect()
}

async fn in_deletion(scene: &Scene) -> i64 {
    scene.number("SELECT count(*) FROM objects WHERE deletion_status <> 'NOT_EXPIRED' OR token IS NOT NULL").await
}

/// A deletion that began too long ago is given up, and told once.
pub async fn a_stuck_deletion_is_reset_once(scene: &Scene) {
    let bucket = scene.bucket("stuck").await;
    scene.put(bucket, "a", 1).await;
    begin(scene).await;
    scene.clock.advance(STUCK);
    assert_eq!(reset(scene, 9).await, [("stuck".to_owned(), "a".to_owned())]);
    assert_eq!((in_deletion(scene).await, reset(scene, 9).await), (0, vec![]));
    assert_eq!(scene.number("SELECT count(*) FROM objects WHERE deletion_initiated_at IS NULL").await, 1);
}

/// A deletion that began lately is left to its worker.
pub async fn a_young_deletion_goes_on(scene: &Scene) {
    let bucket = scene.bucket("young").await;
    scene.put(bucket, "a", 1).await;
    begin(scene).await;
    scene.wait_almost(STUCK);
    assert_eq!((reset(scene, 9).await, in_deletion(scene).await), (vec![], 1));
    scene.clock.advance(STUCK);
    reset(scene, 9).await;
}

/// One step gives up no more than it was told to.
pub async fn resets_are_bounded(scene: &Scene) {
    let bucket = scene.bucket("many").await;
    for key in ["a", "b", "c"] {
        scene.put(bucket, key, 1).await;
    }
    begin(scene).await;
    scene.clock.advance(STUCK);
    assert_eq!((reset(scene, 2).await.len(), in_deletion(scene).await), (2, 1));
    assert_eq!((reset(scene, 2).await.len(), in_deletion(scene).await), (1, 0));
}
