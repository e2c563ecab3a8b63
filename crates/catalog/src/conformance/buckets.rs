//! Facts about buckets.

use s3o_model::conditions::WriteCondition;
use s3o_model::object::Tags;

use super::refused;
use super::scene::{Scene, bucket_name};
use crate::{Buckets, Intents, Late, Uploads, Verdict};

/// The second to create a name learns that it was there.
pub async fn a_bucket_is_created_once(scene: &Scene) {
    let name = bucket_name("once");
    assert!(scene.catalog.create_bucket(&name).await.expect("created"));
    assert!(!scene.catalog.create_bucket(&name).await.expect("asked"));
    let found = scene.catalog.bucket(&name).await.expect("a look").expect("the bucket");
    assert_eq!((found.name, found.created_at, found.tags), (name, scene.now(), Tags::new()));
    assert_eq!(scene.catalog.bucket(&bucket_name("never")).await.expect("a look"), None);
}

/// All buckets, in the order of their names.
pub async fn buckets_come_by_name(scene: &Scene) {
    for name in ["b-2", "a.1", "c00", "b-10"] {
        scene.catalog.create_bucket(&bucket_name(name)).await.expect("created");
    }
    let all = scene.catalog.buckets().await.expect("listed");
    let names: Vec<&str> = all.iter().map(|bucket| bucket.name.as_str()).collect();
    assert_eq!(names, ["a.1", "b-10", "b-2", "c00"]);
}

/// A name may come back, a number never: rows of the old bucket must not become the new one's.
pub async fn a_number_is_never_reused(scene: &Scene) {
    let first = scene.bucket("again").await;
    scene.catalog.delete_bucket(first).await.expect("deleted");
    let second = scene.bucket("again").await;
    assert!(second > first, "{second:?}");
}

/// Tags are replaced as a whole; a bucket that is gone has none.
pub async fn tags_are_replaced(scene: &Scene) {
    let bucket = scene.bucket("tagged").await;
    for tags in [Tags::from([("a".into(), "1".into()), ("b".into(), "2".into())]), Tags::new()] {
        scene.catalog.set_bucket_tags(bucket, &tags).await.expect("tagged");
        let found = scene.catalog.bucket(&bucket_name("tagged")).await.expect("a look").expect("the bucket");
        assert_eq!(found.tags, tags);
    }
    scene.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(scene.catalog.set_bucket_tags(bucket, &Tags::new()).await, Verdict::NoSuchBucket);
}

/// An empty bucket goes, once.
pub async fn an_empty_bucket_goes_once(scene: &Scene) {
    let bucket = scene.bucket("empty").await;
    scene.put(bucket, "a", 1).await;
    assert!(scene.delete(bucket, "a").await);
    scene.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(scene.catalog.delete_bucket(bucket).await, Verdict::NoSuchBucket);
    assert_eq!(scene.catalog.bucket(&bucket_name("empty")).await.expect("a look"), None);
}

/// An object keeps its bucket.
pub async fn a_bucket_with_an_object_stays(scene: &Scene) {
    let bucket = scene.bucket("full").await;
    scene.put(bucket, "a", 1).await;
    refused(scene.catalog.delete_bucket(bucket).await, Verdict::NotEmpty);
    assert!(scene.resolve("full", "a").await.object.is_some());
}

/// An open upload keeps its bucket; a closed one does not, though its parts and its answer stay.
pub async fn only_open_uploads_keep_a_bucket(scene: &Scene) {
    let bucket = scene.bucket("uploads").await;
    let (open, completed) = (scene.upload(bucket, "a").await, scene.upload(bucket, "b").await);
    let parts = [scene.part(completed, 1, 3).await];
    scene.part(open, 1, 3).await;
    scene.complete(completed, &parts).await.expect("completed");
    assert!(scene.delete(bucket, "b").await);
    refused(scene.catalog.delete_bucket(bucket).await, Verdict::NotEmpty);
    scene.catalog.abort_upload(open).await.expect("aborted");
    scene.catalog.delete_bucket(bucket).await.expect("deleted");
    assert!(scene.catalog.upload(completed).await.expect("a look").is_some());
    scene.clean_up().await;
    assert_eq!(scene.booked().await, (0, 0, 0));
}

/// An intent does not keep a bucket: its write finds it gone, whatever it is.
pub async fn a_write_finds_its_bucket_gone(scene: &Scene) {
    let bucket = scene.bucket("gone").await;
    let source = scene.put(scene.bucket("other").await, "a", 1).await;
    let intent = scene.staged(bucket, "a", 7).await;
    scene.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(scene.commit(&intent, WriteCondition::None).await, Verdict::NoSuchBucket);
    refused(scene.copy((source, 1), bucket, "b").await, Verdict::NoSuchBucket);
    refused(scene.try_stage(&scene.intent(bucket, "a", 7)).await, Verdict::NoSuchBucket);
    assert_eq!(scene.booked().await, (1, 0, 7));
    assert!(scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped").was_open);
    assert_eq!(scene.queued().await, [intent.physical_key]);
}

/// An upload cannot begin in a bucket that is gone.
pub async fn an_upload_finds_its_bucket_gone(scene: &Scene) {
    let bucket = scene.bucket("gone").await;
    let upload = scene.upload(bucket, "a").await;
    let mut again = scene.catalog.upload(upload).await.expect("a look").expect("the upload");
    scene.catalog.abort_upload(upload).await.expect("aborted");
    scene.catalog.delete_bucket(bucket).await.expect("deleted");
    again.id = s3o_model::ids::UploadId::new(scene.content().uuid());
    refused(scene.catalog.create_upload(&again).await, Verdict::NoSuchBucket);
}
