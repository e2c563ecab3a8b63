//! Tests of objects that have expired: their rows exist until a worker deletes them, but count as absent.

use std::time::Duration;

use s3o_model::clock::Timestamp;
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::expiry::Expiry;
use s3o_model::ids::{BucketId, UploadId};
use s3o_model::intent::{Draft, Intent};
use s3o_model::listing::ListQuery;
use s3o_model::multipart::{Upload, UploadState};
use s3o_model::object::{Attributes, Tags};

use super::fixture::{Fixture, LEASE, bucket_name, key, md5_of};
use super::refused;
use crate::{CommitPut, CompleteRow, ContentPlan, PutRow, StoredBytes, Verdict, params};

const MINUTE: Duration = Duration::from_mins(1);

/// Creates two objects: `gone` expires now, `soon` in a minute.
async fn two_expiring_objects(fixture: &Fixture) -> (BucketId, ETag) {
    const EXPIRE: &str = "UPDATE objects SET expires_at = :now + CASE key WHEN 'gone' THEN 0 ELSE 60000 END, \
         deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now";
    let bucket = fixture.bucket("expiring").await;
    let content = fixture.put(bucket, "gone", 5).await;
    fixture.copy((content, 5), bucket, "soon").await.expect("copied");
    fixture.change(EXPIRE, vec![]).await;
    (bucket, ETag::of_whole(md5_of(content)))
}

async fn listed(fixture: &Fixture, bucket: BucketId) -> usize {
    let query = ListQuery { limit: 10, ..ListQuery::default() };
    fixture.catalog.list_objects(bucket, query).await.expect("listed").entries.len()
}

/// Reads and listings hide it from the millisecond of its expiration.
pub async fn expired_object_is_not_visible(fixture: &Fixture) {
    let (bucket, _) = two_expiring_objects(fixture).await;
    assert_eq!(fixture.resolve("expiring", "gone").await.object, None);
    assert!(fixture.resolve("expiring", "soon").await.object.is_some());
    assert_eq!(listed(fixture, bucket).await, 1);
    fixture.clock.advance(Duration::from_millis(59_999));
    assert_eq!(listed(fixture, bucket).await, 1);
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!((fixture.resolve("expiring", "soon").await.object, listed(fixture, bucket).await), (None, 0));
}

/// `IfAbsent` overwrites it. `IfMatch` and a conditional delete are refused.
pub async fn conditions_treat_expired_object_as_absent(fixture: &Fixture) {
    let (bucket, etag) = two_expiring_objects(fixture).await;
    let intent = fixture.staged(bucket, "gone", 7).await;
    for condition in [WriteCondition::IfMatch(None), WriteCondition::IfMatch(Some(etag.clone()))] {
        refused(fixture.commit(&intent, condition).await, Verdict::PreconditionFailed);
    }
    refused(fixture.delete_if(bucket, "gone", Some(&etag)).await, Verdict::PreconditionFailed);
    let targets = [(key("gone"), Some(etag.clone())), (key("soon"), Some(etag))];
    let deleted = fixture.catalog.delete_objects(bucket, &targets, fixture.token()).await.expect("deleted");
    assert_eq!(deleted, [key("soon")]);
    let committed = fixture.commit(&intent, WriteCondition::IfAbsent).await.expect("committed");
    assert!(committed.displaced, "its bytes must be deleted");
    assert_eq!(fixture.usage().await, (7, 5, 0));
}

/// Expiration, deletion status and claim of the old row do not apply to the new object.
pub async fn every_write_clears_expiration_columns(fixture: &Fixture) {
    const UNTOUCHED: &str = "SELECT count(*) FROM objects WHERE expires_at IS NULL AND token IS NULL \
         AND deletion_status = 'NOT_EXPIRED' AND deletion_initiated_at IS NULL";
    let (bucket, etag) = two_expiring_objects(fixture).await;
    fixture.change("UPDATE objects SET token = 'expiry'", vec![]).await;
    fixture.put(bucket, "gone", 1).await;
    assert_eq!(fixture.number(UNTOUCHED).await, 1);
    let matching = WriteCondition::IfMatch(Some(etag));
    fixture.commit(&fixture.staged(bucket, "soon", 1).await, matching).await.expect("committed");
    assert_eq!(fixture.number(UNTOUCHED).await, 2);
    assert!(fixture.resolve("expiring", "gone").await.object.is_some());
}

async fn expires_at(fixture: &Fixture, key: &str) -> Option<Timestamp> {
    fixture.resolve("expiring", key).await.object.expect("there").expires_at
}

/// The catalog's clock counts, and the commit returns the expiration.
pub async fn time_to_live_counts_from_the_commit(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    let intent = fixture.staged(bucket, "a", 1).await;
    fixture.clock.advance(MINUTE);
    let put = fixture.put_of(&intent, WriteCondition::None);
    let row = PutRow { expiry: Some(Expiry::After(MINUTE)), ..put.row.clone() };
    let committed = fixture.commit_put(CommitPut { row, ..put }).await.expect("committed");
    let end = Some(fixture.now().after(MINUTE));
    assert_eq!((committed.expires_at, expires_at(fixture, "a").await), (end, end));
    let at = fixture.now().after(2 * MINUTE);
    let (_, committed) = fixture.try_put_expiring(bucket, "b", 1, Expiry::At(at)).await.expect("committed");
    assert_eq!((committed.expires_at, expires_at(fixture, "b").await), (Some(at), Some(at)));
    fixture.wait_almost(MINUTE);
    assert!(fixture.resolve("expiring", "a").await.object.is_some());
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.resolve("expiring", "a").await.object, None);
}

/// A copy does not inherit the expiration of its source.
pub async fn writes_replace_the_expiration(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    let content = fixture.put_expiring(bucket, "a", 1, MINUTE).await;
    fixture.copy((content, 1), bucket, "copy").await.expect("copied");
    assert_eq!(expires_at(fixture, "copy").await, None);
    fixture.copy_expiring((content, 1), bucket, "copy", 3 * MINUTE).await;
    assert_eq!(expires_at(fixture, "copy").await, Some(fixture.now().after(3 * MINUTE)));
    fixture.put_expiring(bucket, "a", 1, 2 * MINUTE).await;
    assert_eq!(expires_at(fixture, "a").await, Some(fixture.now().after(2 * MINUTE)));
    let etag = fixture.resolve("expiring", "a").await.object.expect("there").etag;
    let put = fixture.put_of(&fixture.staged(bucket, "a", 1).await, WriteCondition::IfMatch(Some(etag)));
    let row = PutRow { expiry: Some(Expiry::After(MINUTE)), ..put.row.clone() };
    fixture.commit_put(CommitPut { row, ..put }).await.expect("committed");
    assert_eq!(expires_at(fixture, "a").await, Some(fixture.now().after(MINUTE)));
    fixture.put(bucket, "a", 1).await;
    assert_eq!(expires_at(fixture, "a").await, None);
}

/// The object that was there before is unchanged.
pub async fn write_with_past_expiration_is_refused(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    let there = fixture.put(bucket, "a", 1).await;
    let now = fixture.now();
    refused(fixture.try_put_expiring(bucket, "a", 1, Expiry::At(now)).await, Verdict::Past);
    refused(fixture.try_put_expiring(bucket, "b", 1, Expiry::At(now)).await, Verdict::Past);
    let row = PutRow { expiry: Some(Expiry::At(now)), ..fixture.row(bucket, "a", there, 1) };
    refused(fixture.catalog.commit_copy(row, there, WriteCondition::None).await, Verdict::Past);
    assert_eq!(fixture.resolve("expiring", "a").await.object.expect("there").content, there);
}

async fn upload_with_expiry(fixture: &Fixture, bucket: BucketId, expiry: Expiry) -> CompleteRow {
    let id = UploadId::new(fixture.content().uuid());
    let upload = Upload {
        id,
        bucket,
        key: key("joined"),
        attributes: Attributes::default(),
        checksum: None,
        expiry: Some(expiry),
        created_at: fixture.now(),
        state: UploadState::Open,
    };
    fixture.catalog.create_upload(&upload).await.expect("created");
    let part = fixture.part(id, 1, 3).await;
    let kept = fixture.catalog.upload(id).await.expect("a query").expect("there").expiry;
    assert_eq!(kept, Some(expiry), "it is kept with the upload");
    let complete = fixture.completion(id, &[part]).await;
    CompleteRow { row: PutRow { expiry: kept, ..complete.row.clone() }, ..complete }
}

/// Complete is refused if a fixed expiration passed before.
pub async fn time_to_live_of_upload_counts_from_complete(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    let complete = upload_with_expiry(fixture, bucket, Expiry::After(MINUTE)).await;
    fixture.clock.advance(2 * MINUTE);
    let committed = fixture.catalog.complete_upload(complete).await.expect("completed");
    let end = Some(fixture.now().after(MINUTE));
    assert_eq!((committed.expires_at, expires_at(fixture, "joined").await), (end, end));
    let complete = upload_with_expiry(fixture, bucket, Expiry::At(fixture.now().after(MINUTE))).await;
    fixture.clock.advance(MINUTE);
    refused(fixture.catalog.complete_upload(complete).await, Verdict::Past);
}

/// A promotion after a fixed expiration is refused.
pub async fn promoted_write_keeps_its_expiration(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    for (name, expiry) in [("a", Expiry::After(MINUTE)), ("b", Expiry::At(fixture.now().after(MINUTE)))] {
        let draft = Draft { expiry: Some(expiry), ..Draft::default() };
        let intent = Intent { draft: Some(draft), ..fixture.intent(bucket, name, 1) };
        fixture.try_stage(&intent).await.expect("staged");
    }
    fixture.clock.advance(LEASE);
    let token = fixture.token();
    for left in fixture.catalog.claim_expired(token, 9, LEASE).await.expect("claimed") {
        let content = fixture.content();
        let (expiry, key) = (left.draft.expect("a draft").expiry, left.key.expect("an object's key"));
        let promoted = fixture.commit_put(CommitPut {
            stored: StoredBytes::Reaped {
                write: left.write,
                copies: 1,
                backend_versions: Vec::new(),
                failed: Vec::new(),
                token,
            },
            content,
            md5: md5_of(content),
            sha256: None,
            plan: ContentPlan::Fresh(None),
            row: PutRow { expiry, ..fixture.row(bucket, key.as_str(), content, 1) },
            condition: WriteCondition::None,
            is_first: false,
            factor: 1,
        });
        match key.as_str() {
            "a" => assert_eq!(promoted.await.expect("promoted").expires_at, Some(fixture.now().after(MINUTE))),
            _ => refused(promoted.await, Verdict::Past),
        }
    }
}

/// `set_object_tags` gets `RunAgain`.
pub async fn expired_object_is_neither_counted_nor_tagged(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    fixture.put_expiring(bucket, "a", 5, MINUTE).await;
    fixture.put(bucket, "b", 7).await;
    let object = fixture.resolve("expiring", "a").await.object.expect("there");
    fixture.clock.advance(MINUTE);
    let counted = fixture.catalog.count_objects().await.expect("counted");
    assert_eq!((counted[0].objects, counted[0].bytes), (1, 7));
    refused(fixture.catalog.set_object_tags(&object, &Tags::new()).await, Verdict::RunAgain);
}

/// `remove_expired_in` empties the bucket in bounded steps, including rows that a worker has claimed.
pub async fn expired_objects_do_not_prevent_bucket_deletion(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    let content = fixture.put_expiring(bucket, "a", 1, MINUTE).await;
    fixture.copy_expiring((content, 1), bucket, "b", MINUTE).await;
    fixture.put_expiring(bucket, "c", 1, 2 * MINUTE).await;
    fixture.clock.advance(MINUTE);
    assert!(fixture.catalog.has_live_objects(bucket).await.expect("a query"), "c has not expired");
    fixture.clock.advance(MINUTE);
    let (claimed, count) = fixture.claim_expiries(1).await;
    assert_eq!((count, fixture.catalog.has_live_objects(bucket).await.expect("a query")), (1, false));
    refused(fixture.catalog.delete_bucket(bucket).await, Verdict::NotEmpty);
    let remove = || async {
        let removed = fixture.catalog.remove_expired_in(bucket, 2, fixture.token()).await.expect("removed");
        removed
            .into_iter()
            .map(|object| format!("{}/{} {}", object.bucket, object.key, object.size_bytes))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (remove().await, remove().await),
        (vec!["expiring/a 1".into(), "expiring/b 1".into()], vec!["expiring/c 1".into()])
    );
    assert_eq!(remove().await, Vec::<String>::new());
    assert_eq!(fixture.remove_claimed(claimed).await, Vec::<String>::new());
    assert_eq!(fixture.usage().await, (0, 2, 0), "the bytes of a and b are the same");
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    assert_eq!(fixture.catalog.bucket(&bucket_name("expiring")).await.expect("a query"), None);
}

/// The cleanup row has the reason `expiry`.
pub async fn bytes_of_expired_object_are_queued_as_expiry(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    fixture.put_expiring(bucket, "a", 1, MINUTE).await;
    fixture.clock.advance(MINUTE);
    let (token, _) = fixture.claim_expiries(9).await;
    assert_eq!(fixture.remove_claimed(token).await, ["a"]);
    let reasons = fixture.rows("SELECT reason FROM cleanup_queue WHERE size_bytes = $1", params![1]).await;
    assert_eq!(reasons[0].text("reason").expect("a reason"), "expiry");
}
