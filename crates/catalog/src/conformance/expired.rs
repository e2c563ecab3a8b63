//! Facts about objects whose time has passed: their rows are there, and count as absent.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::ids::BucketId;
use s3o_model::listing::ListQuery;

use super::refused;
use super::scene::{Scene, key, md5_of};
use crate::{Objects, Verdict};

/// Two objects; `gone` expires now, `soon` in a minute.
async fn two_mortals(scene: &Scene) -> (BucketId, ETag) {
    const EXPIRE: &str = "UPDATE objects SET expires_at = :now + CASE key WHEN 'gone' THEN 0 ELSE 60000 END, \
         deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now";
    let bucket = scene.bucket("mortal").await;
    let content = scene.put(bucket, "gone", 5).await;
    scene.copy((content, 5), bucket, "soon").await.expect("copied");
    scene.change(EXPIRE, vec![]).await;
    (bucket, ETag::of_whole(md5_of(content)))
}

async fn listed(scene: &Scene, bucket: BucketId) -> usize {
    let query = ListQuery { limit: 10, ..ListQuery::default() };
    scene.catalog.list_objects(bucket, query).await.expect("listed").entries.len()
}

/// Reads and lists show it no more from that very moment, and not before.
pub async fn nobody_sees_it(scene: &Scene) {
    let (bucket, _) = two_mortals(scene).await;
    assert_eq!(scene.resolve("mortal", "gone").await.object, None);
    assert!(scene.resolve("mortal", "soon").await.object.is_some());
    assert_eq!(listed(scene, bucket).await, 1);
    scene.clock.advance(Duration::from_millis(59_999));
    assert_eq!(listed(scene, bucket).await, 1);
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!((scene.resolve("mortal", "soon").await.object, listed(scene, bucket).await), (None, 0));
}

/// `IfAbsent` may write over it, `IfMatch` may not, nor a delete that names it.
pub async fn no_condition_meets_it(scene: &Scene) {
    let (bucket, etag) = two_mortals(scene).await;
    let intent = scene.staged(bucket, "gone", 7).await;
    for condition in [WriteCondition::IfMatch(None), WriteCondition::IfMatch(Some(etag.clone()))] {
        refused(scene.commit(&intent, condition).await, Verdict::PreconditionFailed);
    }
    refused(
        scene.catalog.delete_object(bucket, &key("gone"), Some(&etag), scene.token()).await,
        Verdict::PreconditionFailed,
    );
    let targets = [(key("gone"), Some(etag.clone())), (key("soon"), Some(etag))];
    let gone = scene.catalog.delete_objects(bucket, &targets, scene.token()).await.expect("deleted");
    assert_eq!(gone, [key("soon")]);
    let committed = scene.commit(&intent, WriteCondition::IfAbsent).await.expect("committed");
    assert!(committed.displaced, "its bytes must go");
    assert_eq!(scene.booked().await, (7, 5, 0));
}

/// Every write gives the row a life of its own again: expiry, status and claim are gone.
pub async fn every_write_clears_it(scene: &Scene) {
    const UNTOUCHED: &str = "SELECT count(*) FROM objects WHERE expires_at IS NULL AND token IS NULL \
         AND deletion_status = 'NOT_EXPIRED' AND deletion_initiated_at IS NULL";
    let (bucket, etag) = two_mortals(scene).await;
    scene.change("UPDATE objects SET token = 'expiry'", vec![]).await;
    scene.put(bucket, "gone", 1).await;
    assert_eq!(scene.number(UNTOUCHED).await, 1);
    let matching = WriteCondition::IfMatch(Some(etag));
    scene.commit(&scene.staged(bucket, "soon", 1).await, matching).await.expect("committed");
    assert_eq!(scene.number(UNTOUCHED).await, 2);
    assert!(scene.resolve("mortal", "gone").await.object.is_some());
}
