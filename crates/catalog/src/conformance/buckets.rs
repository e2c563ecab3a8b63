//! Tests of buckets.

use s3o_model::conditions::WriteCondition;
use s3o_model::object::Tags;

use super::fixture::{Fixture, bucket_name};
use super::refused;
use crate::{Late, Verdict};

/// The second `create_bucket` with the same name returns false.
pub async fn bucket_is_created_once(fixture: &Fixture) {
    let name = bucket_name("once");
    assert!(fixture.catalog.create_bucket(&name, None).await.expect("created"));
    assert!(!fixture.catalog.create_bucket(&name, None).await.expect("a query"));
    let found = fixture.catalog.bucket(&name).await.expect("a query").expect("the bucket");
    assert_eq!((found.name, found.created_at, found.tags), (name, fixture.now(), Tags::new()));
    assert_eq!(fixture.catalog.bucket(&bucket_name("never")).await.expect("a query"), None);
}

/// Names are compared byte by byte.
pub async fn buckets_are_listed_by_name(fixture: &Fixture) {
    for name in ["b-2", "a.1", "c00", "b-10"] {
        fixture.catalog.create_bucket(&bucket_name(name), None).await.expect("created");
    }
    let all = fixture.catalog.buckets().await.expect("listed");
    let names: Vec<&str> = all.iter().map(|bucket| bucket.name.as_str()).collect();
    assert_eq!(names, ["a.1", "b-10", "b-2", "c00"]);
}

/// A new bucket with an old name gets a higher ID, so that it does not inherit rows of the deleted bucket.
pub async fn bucket_ids_are_never_reused(fixture: &Fixture) {
    let first = fixture.bucket("again").await;
    fixture.catalog.delete_bucket(first).await.expect("deleted");
    let second = fixture.bucket("again").await;
    assert!(second > first, "{second:?}");
}

/// Tags of a deleted bucket are refused.
pub async fn bucket_tags_are_replaced_as_a_whole(fixture: &Fixture) {
    let bucket = fixture.bucket("tagged").await;
    for tags in [Tags::from([("a".into(), "1".into()), ("b".into(), "2".into())]), Tags::new()] {
        fixture.catalog.set_bucket_tags(bucket, &tags).await.expect("tagged");
        let found = fixture.catalog.bucket(&bucket_name("tagged")).await.expect("a query").expect("the bucket");
        assert_eq!(found.tags, tags);
    }
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(fixture.catalog.set_bucket_tags(bucket, &Tags::new()).await, Verdict::NoSuchBucket);
}

/// The second delete gets `NoSuchBucket`.
pub async fn empty_bucket_is_deleted_once(fixture: &Fixture) {
    let bucket = fixture.bucket("empty").await;
    fixture.put(bucket, "a", 1).await;
    assert!(fixture.delete(bucket, "a").await);
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(fixture.catalog.delete_bucket(bucket).await, Verdict::NoSuchBucket);
    assert_eq!(fixture.catalog.bucket(&bucket_name("empty")).await.expect("a query"), None);
}

/// The delete gets `NotEmpty`.
pub async fn bucket_with_an_object_is_not_deleted(fixture: &Fixture) {
    let bucket = fixture.bucket("full").await;
    fixture.put(bucket, "a", 1).await;
    refused(fixture.catalog.delete_bucket(bucket).await, Verdict::NotEmpty);
    assert!(fixture.resolve("full", "a").await.object.is_some());
}

/// A closed upload does not, though its parts and its answer are still stored.
pub async fn only_open_uploads_prevent_bucket_deletion(fixture: &Fixture) {
    let bucket = fixture.bucket("uploads").await;
    let (open, completed) = (fixture.upload(bucket, "a").await, fixture.upload(bucket, "b").await);
    let parts = [fixture.part(completed, 1, 3).await];
    fixture.part(open, 1, 3).await;
    fixture.complete(completed, &parts).await.expect("completed");
    assert!(fixture.delete(bucket, "b").await);
    refused(fixture.catalog.delete_bucket(bucket).await, Verdict::NotEmpty);
    fixture.catalog.abort_upload(open).await.expect("aborted");
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    assert!(fixture.catalog.upload(completed).await.expect("a query").is_some());
    fixture.clean_up().await;
    assert_eq!(fixture.usage().await, (0, 0, 0));
}

/// An open intent does not prevent the deletion. Its commit, copies and new intents get `NoSuchBucket`.
pub async fn writes_to_deleted_bucket_are_refused(fixture: &Fixture) {
    let bucket = fixture.bucket("gone").await;
    let source = fixture.put(fixture.bucket("other").await, "a", 1).await;
    let intent = fixture.staged(bucket, "a", 7).await;
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(fixture.commit(&intent, WriteCondition::None).await, Verdict::NoSuchBucket);
    refused(fixture.copy((source, 1), bucket, "b").await, Verdict::NoSuchBucket);
    refused(fixture.try_stage(&fixture.intent(bucket, "a", 7)).await, Verdict::NoSuchBucket);
    assert_eq!(fixture.usage().await, (1, 0, 7));
    assert!(fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped").was_open);
    assert_eq!(fixture.queued().await, [intent.physical_key]);
}

/// `create_upload` gets `NoSuchBucket`.
pub async fn upload_to_deleted_bucket_is_refused(fixture: &Fixture) {
    let bucket = fixture.bucket("gone").await;
    let upload = fixture.upload(bucket, "a").await;
    let mut again = fixture.catalog.upload(upload).await.expect("a query").expect("the upload");
    fixture.catalog.abort_upload(upload).await.expect("aborted");
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    again.id = s3o_model::ids::UploadId::new(fixture.content().uuid());
    refused(fixture.catalog.create_upload(&again).await, Verdict::NoSuchBucket);
}
