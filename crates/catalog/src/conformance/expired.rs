//! Facts about objects whose time has passed: their rows are there, and count as absent.

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

use super::refused;
use super::scene::{LEASE, Scene, bucket_name, key, md5_of};
use crate::{
    Buckets, CommitPut, CompleteRow, Expiries, Intents, Landed, Objects, Overview, PutRow, Uploads, Verdict, params,
};

const MINUTE: Duration = Duration::from_mins(1);

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

async fn expires_at(scene: &Scene, key: &str) -> Option<Timestamp> {
    scene.resolve("mortal", key).await.object.expect("there").expires_at
}

/// A time to live counts from the commit by the catalog's clock, and the writer is told its end.
pub async fn a_time_to_live_counts_from_the_commit(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    let intent = scene.staged(bucket, "a", 1).await;
    scene.clock.advance(MINUTE);
    let put = scene.put_of(&intent, WriteCondition::None);
    let row = PutRow { expiry: Some(Expiry::After(MINUTE)), ..put.row.clone() };
    let committed = scene.catalog.commit_put(CommitPut { row, ..put }).await.expect("committed");
    let end = Some(scene.now().after(MINUTE));
    assert_eq!((committed.expires_at, expires_at(scene, "a").await), (end, end));
    let at = scene.now().after(2 * MINUTE);
    let (_, committed) = scene.try_mortal(bucket, "b", 1, Expiry::At(at)).await.expect("committed");
    assert_eq!((committed.expires_at, expires_at(scene, "b").await), (Some(at), Some(at)));
    scene.wait_almost(MINUTE);
    assert!(scene.resolve("mortal", "a").await.object.is_some());
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(scene.resolve("mortal", "a").await.object, None);
}

/// Every write says anew when the object expires; a copy takes nothing over from its source.
pub async fn a_write_replaces_the_expiry(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    let content = scene.mortal(bucket, "a", 1, MINUTE).await;
    scene.copy((content, 1), bucket, "copy").await.expect("copied");
    assert_eq!(expires_at(scene, "copy").await, None);
    scene.mortal_copy((content, 1), bucket, "copy", 3 * MINUTE).await;
    assert_eq!(expires_at(scene, "copy").await, Some(scene.now().after(3 * MINUTE)));
    scene.mortal(bucket, "a", 1, 2 * MINUTE).await;
    assert_eq!(expires_at(scene, "a").await, Some(scene.now().after(2 * MINUTE)));
    let etag = scene.resolve("mortal", "a").await.object.expect("there").etag;
    let put = scene.put_of(&scene.staged(bucket, "a", 1).await, WriteCondition::IfMatch(Some(etag)));
    let row = PutRow { expiry: Some(Expiry::After(MINUTE)), ..put.row.clone() };
    scene.catalog.commit_put(CommitPut { row, ..put }).await.expect("committed");
    assert_eq!(expires_at(scene, "a").await, Some(scene.now().after(MINUTE)));
    scene.put(bucket, "a", 1).await;
    assert_eq!(expires_at(scene, "a").await, None);
}

/// A moment that has passed when the object would appear is refused; what is there stays.
pub async fn nothing_appears_that_has_ceased(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    let there = scene.put(bucket, "a", 1).await;
    let now = scene.now();
    refused(scene.try_mortal(bucket, "a", 1, Expiry::At(now)).await, Verdict::Past);
    refused(scene.try_mortal(bucket, "b", 1, Expiry::At(now)).await, Verdict::Past);
    let row = PutRow { expiry: Some(Expiry::At(now)), ..scene.row(bucket, "a", there, 1) };
    refused(scene.catalog.commit_copy(row, there, WriteCondition::None).await, Verdict::Past);
    assert_eq!(scene.resolve("mortal", "a").await.object.expect("there").content, there);
}

async fn mortal_upload(scene: &Scene, bucket: BucketId, expiry: Expiry) -> CompleteRow {
    let id = UploadId::new(scene.content().uuid());
    let upload = Upload {
        id,
        bucket,
        key: key("joined"),
        attributes: Attributes::default(),
        checksum: None,
        expiry: Some(expiry),
        created_at: scene.now(),
        state: UploadState::Open,
    };
    scene.catalog.create_upload(&upload).await.expect("created");
    let part = scene.part(id, 1, 3).await;
    let kept = scene.catalog.upload(id).await.expect("a look").expect("there").expiry;
    assert_eq!(kept, Some(expiry), "it is kept with the upload");
    let complete = scene.completion(id, &[part]).await;
    CompleteRow { row: PutRow { expiry: kept, ..complete.row.clone() }, ..complete }
}

/// The object of an upload lives from Complete on; a moment that passed before it is refused.
pub async fn an_upload_lives_from_complete_on(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    let complete = mortal_upload(scene, bucket, Expiry::After(MINUTE)).await;
    scene.clock.advance(2 * MINUTE);
    let committed = scene.catalog.complete_upload(complete).await.expect("completed");
    let end = Some(scene.now().after(MINUTE));
    assert_eq!((committed.expires_at, expires_at(scene, "joined").await), (end, end));
    let complete = mortal_upload(scene, bucket, Expiry::At(scene.now().after(MINUTE))).await;
    scene.clock.advance(MINUTE);
    refused(scene.catalog.complete_upload(complete).await, Verdict::Past);
}

/// A write whose writer is gone keeps its expiry; finished too late for it, it is given up.
pub async fn a_left_write_expires_too(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    for (name, expiry) in [("a", Expiry::After(MINUTE)), ("b", Expiry::At(scene.now().after(MINUTE)))] {
        let draft = Draft { expiry: Some(expiry), ..Draft::default() };
        let intent = Intent { draft: Some(draft), ..scene.intent(bucket, name, 1) };
        scene.try_stage(&intent).await.expect("staged");
    }
    scene.clock.advance(LEASE);
    let token = scene.token();
    for left in scene.catalog.claim_expired(token, 9, LEASE).await.expect("claimed") {
        let content = scene.content();
        let expiry = left.draft.expect("a draft").expiry;
        let promoted = scene.catalog.commit_put(CommitPut {
            landed: Landed::Reaped { write: left.write, copies: 1, token },
            content,
            md5: md5_of(content),
            sha256: None,
            dedup: None,
            row: PutRow { expiry, ..scene.row(bucket, left.key.as_str(), content, 1) },
            condition: WriteCondition::None,
            is_first: false,
        });
        match left.key.as_str() {
            "a" => assert_eq!(promoted.await.expect("promoted").expires_at, Some(scene.now().after(MINUTE))),
            _ => refused(promoted.await, Verdict::Past),
        }
    }
}

/// What has expired is not counted, and cannot be tagged.
pub async fn it_is_neither_counted_nor_tagged(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    scene.mortal(bucket, "a", 5, MINUTE).await;
    scene.put(bucket, "b", 7).await;
    let object = scene.resolve("mortal", "a").await.object.expect("there");
    scene.clock.advance(MINUTE);
    let counted = scene.catalog.count_objects().await.expect("counted");
    assert_eq!((counted[0].objects, counted[0].bytes), (1, 7));
    refused(scene.catalog.set_object_tags(&object, &Tags::new()).await, Verdict::RunAgain);
}

/// A bucket in which everything has expired is emptied in bounded steps, whoever has claimed what.
pub async fn it_keeps_no_bucket(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    let content = scene.mortal(bucket, "a", 1, MINUTE).await;
    scene.mortal_copy((content, 1), bucket, "b", MINUTE).await;
    scene.mortal(bucket, "c", 1, 2 * MINUTE).await;
    scene.clock.advance(MINUTE);
    assert!(scene.catalog.has_live_objects(bucket).await.expect("a look"), "c is alive");
    scene.clock.advance(MINUTE);
    let (claimed, count) = scene.claim_expiries(1).await;
    assert_eq!((count, scene.catalog.has_live_objects(bucket).await.expect("a look")), (1, false));
    refused(scene.catalog.delete_bucket(bucket).await, Verdict::NotEmpty);
    let remove = || async {
        let removed = scene.catalog.remove_expired_in(bucket, 2, scene.token()).await.expect("removed");
        removed.into_iter().map(|gone| format!("{}/{} {}", gone.bucket, gone.key, gone.size_bytes)).collect::<Vec<_>>()
    };
    assert_eq!(
        (remove().await, remove().await),
        (vec!["mortal/a 1".into(), "mortal/b 1".into()], vec!["mortal/c 1".into()])
    );
    assert_eq!(remove().await, Vec::<String>::new());
    assert_eq!(scene.remove_claimed(claimed).await, Vec::<String>::new());
    assert_eq!(scene.booked().await, (0, 2, 0), "the bytes of a and b are the same");
    scene.catalog.delete_bucket(bucket).await.expect("deleted");
    assert_eq!(scene.catalog.bucket(&bucket_name("mortal")).await.expect("a look"), None);
}

/// The queue says why its bytes go.
pub async fn its_bytes_go_because_it_expired(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    scene.mortal(bucket, "a", 1, MINUTE).await;
    scene.clock.advance(MINUTE);
    let (token, _) = scene.claim_expiries(9).await;
    assert_eq!(scene.remove_claimed(token).await, ["a"]);
    let reasons = scene.rows("SELECT reason FROM cleanup_queue WHERE size_bytes = $1", params![1]).await;
    assert_eq!(reasons[0].text(0).expect("a reason"), "expiry");
}
