//! What keeps bytes that something refers to from being condemned, and what is condemned from coming back.

use s3o_model::ids::{BucketId, ContentId};

use super::Cut::Words;
use super::{Told, broken, safeties};
use crate::conformance::scene::Scene;
use crate::{Audits, PartSource, Uploads, params};

/// The rows that confirm a count, as the delete of one object asks for them.
const OBJECTS: &str = " AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.content_id = contents.id \
    AND NOT (o.token IS NOT NULL AND o.token = $1))";
const PIECES: &str = " AND NOT EXISTS (SELECT 1 FROM content_parts p WHERE p.whole_id = contents.id AND NOT (1 = 0))";
const PARTS: &str =
    " AND NOT EXISTS (SELECT 1 FROM multipart_parts m WHERE m.content_id = contents.id AND NOT (1 = 0))";
const PINS: &str =
    " AND NOT EXISTS (SELECT 1 FROM pending_objects q WHERE q.pin_content_id = contents.id AND NOT (1 = 0))";

safeties! { [sqlite]
    the_count_keeps_shared_content by one_of_two_objects_goes: "delete_object",
        [Words(" AND ref_count = 0", ""), Words(OBJECTS, "")], [broken::OBJECT, broken::CONDEMNED];
    objects_confirm_a_count by one_of_two_objects_goes_uncounted: "delete_object",
        [Words(OBJECTS, "")], [broken::OBJECT, broken::CONDEMNED];
    pieces_confirm_a_count by an_object_goes_before_a_joined_one: "delete_object",
        [Words(PIECES, "")], [broken::PIECE, broken::CONDEMNED];
    parts_confirm_a_count by an_object_goes_before_an_upload: "delete_object",
        [Words(PARTS, "")], [broken::PART, broken::CONDEMNED];
    pins_confirm_a_count by an_object_goes_before_a_pin: "delete_object",
        [Words(PINS, "")], [broken::CONDEMNED];
    an_audit_looks_again_before_it_condemns by a_copy_meets_an_audit: "condemn_unreferenced",
        [Words(" AND ref_count = 0", ""), Words("WHERE o.content_id = contents.id", "WHERE 1 = 0")],
        [broken::OBJECT, broken::CONDEMNED];
    a_copy_finds_live_content by a_copy_comes_after_the_delete: "commit_copy",
        [Words(" AND state = 'live'", "")], [broken::OBJECT, broken::CONDEMNED];
    a_range_finds_live_content by a_range_comes_after_the_delete: "commit_part",
        [Words(" AND state = 'live'", "")], [broken::PART, broken::CONDEMNED];
    a_write_remembers_what_it_displaced by an_object_is_overwritten: "commit_put",
        [Words("prev_content_id = objects.content_id, ", "")], [broken::COUNT];
    a_part_remembers_what_it_displaced by a_part_is_sent_again: "commit_part",
        [Words("prev_content_id = multipart_parts.content_id, ", "")], [broken::COUNT];
    a_delete_lets_go_of_what_it_removes by an_object_goes: "delete_object",
        [Words("UPDATE contents SET ref_count = ref_count - s.n", "UPDATE contents SET ref_count = ref_count - s.n + s.n")],
        [broken::COUNT];
}

const SIZE: u64 = 5;

/// An object `a`, with its content.
async fn object(scene: &Scene) -> (BucketId, ContentId) {
    let bucket = scene.bucket("house").await;
    (bucket, scene.put(bucket, "a", SIZE).await)
}

/// As if a reference had been taken without being counted.
async fn miscount(scene: &Scene, content: ContentId) {
    scene.change("UPDATE contents SET ref_count = ref_count - 1 WHERE id = $1", params![content]).await;
}

/// Removes the object; the audit then puts the count right.
async fn delete_and_recount(scene: &Scene, bucket: BucketId, content: ContentId) -> Told {
    assert!(scene.delete(bucket, "a").await);
    scene.recount(&[content]).await;
    Told::new()
}

async fn one_of_two_objects_goes(scene: &Scene) -> Told {
    let (bucket, content) = object(scene).await;
    scene.copy((content, SIZE), bucket, "b").await.expect("copied");
    assert!(scene.delete(bucket, "a").await);
    Told::new()
}

async fn one_of_two_objects_goes_uncounted(scene: &Scene) -> Told {
    let (bucket, content) = object(scene).await;
    scene.copy((content, SIZE), bucket, "b").await.expect("copied");
    miscount(scene, content).await;
    delete_and_recount(scene, bucket, content).await
}

async fn part_of(scene: &Scene, bucket: BucketId, content: ContentId) -> s3o_model::ids::UploadId {
    let upload = scene.upload(bucket, "joined").await;
    let part = scene.part_of(upload, 1, (content, SIZE), PartSource::Range { offset: 0 });
    scene.catalog.commit_part(part).await.expect("committed");
    upload
}

async fn an_object_goes_before_an_upload(scene: &Scene) -> Told {
    let (bucket, content) = object(scene).await;
    part_of(scene, bucket, content).await;
    miscount(scene, content).await;
    delete_and_recount(scene, bucket, content).await
}

async fn an_object_goes_before_a_joined_one(scene: &Scene) -> Told {
    let (bucket, content) = object(scene).await;
    let upload = part_of(scene, bucket, content).await;
    scene.complete(upload, &[(1, content)]).await.expect("completed");
    miscount(scene, content).await;
    delete_and_recount(scene, bucket, content).await
}

async fn an_object_goes_before_a_pin(scene: &Scene) -> Told {
    let (bucket, content) = object(scene).await;
    let pin = "INSERT INTO pending_objects \
         (id, write_id, kind, bucket_id, key, pin_content_id, size_bytes, stripe, owner, lease_until, created_at) \
         VALUES ('pin', 'pin', 'pin', $1, 'b', $2, 0, 0, 'somebody', :now, :now)";
    scene.change(pin, params![bucket, content]).await;
    delete_and_recount(scene, bucket, content).await
}

/// What an audit found is used again before it acts.
async fn a_copy_meets_an_audit(scene: &Scene) -> Told {
    let (bucket, content) = object(scene).await;
    scene.change("DELETE FROM objects WHERE content_id = $1", params![content]).await;
    scene.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![content]).await;
    let found = scene.catalog.audit_counts(None, 9).await.expect("a page").unreferenced;
    assert_eq!(found, [content]);
    let seen = scene.catalog.confirm_suspects(&found).await.expect("counted");
    scene.copy((content, SIZE), bucket, "b").await.expect("copied");
    scene.catalog.condemn_unreferenced(&seen).await.expect("a look");
    Told::new()
}

async fn a_copy_comes_after_the_delete(scene: &Scene) -> Told {
    let (bucket, content) = object(scene).await;
    assert!(scene.delete(bucket, "a").await);
    scene.copy((content, SIZE), bucket, "b").await.map(drop).unwrap_or_default();
    Told::new()
}

async fn a_range_comes_after_the_delete(scene: &Scene) -> Told {
    let (bucket, content) = object(scene).await;
    let upload = scene.upload(bucket, "joined").await;
    assert!(scene.delete(bucket, "a").await);
    let part = scene.part_of(upload, 1, (content, SIZE), PartSource::Range { offset: 0 });
    scene.catalog.commit_part(part).await.map(drop).unwrap_or_default();
    Told::new()
}

async fn an_object_is_overwritten(scene: &Scene) -> Told {
    let (bucket, _) = object(scene).await;
    scene.put(bucket, "a", SIZE).await;
    Told::new()
}

async fn a_part_is_sent_again(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "joined").await;
    scene.part(upload, 1, SIZE).await;
    scene.part(upload, 1, SIZE).await;
    Told::new()
}

async fn an_object_goes(scene: &Scene) -> Told {
    let (bucket, _) = object(scene).await;
    assert!(scene.delete(bucket, "a").await);
    Told::new()
}
