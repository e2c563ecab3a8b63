//! Guards of references: content that a row refers to is not condemned, and condemned content gets no new references.

use s3o_model::ids::{BucketId, ContentId};

use super::Cut::Words;
use super::{Damage, broken, guards};
use crate::conformance::fixture::Fixture;
use crate::{PartSource, params};

/// Predicates of `delete_object` that confirm a count of zero: no row of these tables refers to the content.
const OBJECTS: &str = " AND NOT EXISTS (SELECT 1 FROM objects o WHERE o.content_id = contents.id \
    AND NOT (o.token IS NOT NULL AND o.token = $1))";
const PIECES: &str = " AND NOT EXISTS (SELECT 1 FROM content_parts p WHERE p.whole_id = contents.id AND NOT (1 = 0))";
const PARTS: &str =
    " AND NOT EXISTS (SELECT 1 FROM multipart_parts m WHERE m.content_id = contents.id AND NOT (1 = 0))";
const PINS: &str =
    " AND NOT EXISTS (SELECT 1 FROM pending_objects q WHERE q.pin_content_id = contents.id AND NOT (1 = 0))";

guards! { [sqlite]
    shared_content_is_not_condemned in one_of_two_objects_is_deleted: "delete_object",
        [Words(" AND ref_count = 0", ""), Words(OBJECTS, "")], [broken::OBJECT, broken::CONDEMNED];
    objects_confirm_a_zero_count in one_of_two_uncounted_objects_is_deleted: "delete_object",
        [Words(OBJECTS, "")], [broken::OBJECT, broken::CONDEMNED];
    pieces_confirm_a_zero_count in an_object_is_deleted_while_joined_content_uses_it: "delete_object",
        [Words(PIECES, "")], [broken::PIECE, broken::CONDEMNED];
    parts_confirm_a_zero_count in an_object_is_deleted_while_an_upload_uses_it: "delete_object",
        [Words(PARTS, "")], [broken::PART, broken::CONDEMNED];
    pins_confirm_a_zero_count in an_object_is_deleted_while_a_pin_uses_it: "delete_object",
        [Words(PINS, "")], [broken::CONDEMNED];
    an_audit_checks_references_again_before_condemning in content_is_copied_during_an_audit: "condemn_unreferenced",
        [Words(" AND ref_count = 0", ""), Words("WHERE o.content_id = contents.id", "WHERE 1 = 0")],
        [broken::OBJECT, broken::CONDEMNED];
    a_copy_needs_live_content in content_is_copied_after_its_delete: "commit_copy",
        [Words(" AND state = 'live'", "")], [broken::OBJECT, broken::CONDEMNED];
    a_part_range_needs_live_content in a_range_is_copied_after_its_delete: "commit_part",
        [Words(" AND state = 'live'", "")], [broken::PART, broken::CONDEMNED];
    a_write_releases_the_content_it_replaced in an_object_is_overwritten: "commit_put",
        [Words("prev_content_id = objects.content_id, ", "")], [broken::COUNT];
    a_part_releases_the_content_it_replaced in a_part_is_uploaded_again: "commit_part",
        [Words("prev_content_id = multipart_parts.content_id, ", "")], [broken::COUNT];
    a_delete_releases_the_content_it_removed in an_object_is_deleted: "delete_object",
        [Words("UPDATE contents SET ref_count = ref_count - s.n",
            "UPDATE contents SET ref_count = ref_count - s.n + s.n")],
        [broken::COUNT];
}

const SIZE: u64 = 5;

/// Creates an object `a`.
async fn object(fixture: &Fixture) -> (BucketId, ContentId) {
    let bucket = fixture.bucket("data").await;
    (bucket, fixture.put(bucket, "a", SIZE).await)
}

/// Makes the count too low by one, as after a reference that was not counted.
async fn miscount(fixture: &Fixture, content: ContentId) {
    fixture.change("UPDATE contents SET ref_count = ref_count - 1 WHERE id = $1", params![content]).await;
}

/// Deletes the object `a`; an audit then corrects the count.
async fn delete_and_recount(fixture: &Fixture, bucket: BucketId, content: ContentId) -> Damage {
    assert!(fixture.delete(bucket, "a").await);
    fixture.recount(&[content]).await;
    Damage::new()
}

async fn one_of_two_objects_is_deleted(fixture: &Fixture) -> Damage {
    let (bucket, content) = object(fixture).await;
    fixture.copy((content, SIZE), bucket, "b").await.expect("copied");
    assert!(fixture.delete(bucket, "a").await);
    Damage::new()
}

async fn one_of_two_uncounted_objects_is_deleted(fixture: &Fixture) -> Damage {
    let (bucket, content) = object(fixture).await;
    fixture.copy((content, SIZE), bucket, "b").await.expect("copied");
    miscount(fixture, content).await;
    delete_and_recount(fixture, bucket, content).await
}

async fn upload_with_part(fixture: &Fixture, bucket: BucketId, content: ContentId) -> s3o_model::ids::UploadId {
    let upload = fixture.upload(bucket, "joined").await;
    let part = fixture.part_of(upload, 1, (content, SIZE), PartSource::Range { offset: 0 });
    fixture.store_part(part).await.expect("committed");
    upload
}

async fn an_object_is_deleted_while_an_upload_uses_it(fixture: &Fixture) -> Damage {
    let (bucket, content) = object(fixture).await;
    upload_with_part(fixture, bucket, content).await;
    miscount(fixture, content).await;
    delete_and_recount(fixture, bucket, content).await
}

async fn an_object_is_deleted_while_joined_content_uses_it(fixture: &Fixture) -> Damage {
    let (bucket, content) = object(fixture).await;
    let upload = upload_with_part(fixture, bucket, content).await;
    fixture.complete(upload, &[(1, content)]).await.expect("completed");
    miscount(fixture, content).await;
    delete_and_recount(fixture, bucket, content).await
}

async fn an_object_is_deleted_while_a_pin_uses_it(fixture: &Fixture) -> Damage {
    let (bucket, content) = object(fixture).await;
    let pin = "INSERT INTO pending_objects \
         (id, write_id, kind, bucket_id, key, pin_content_id, size_bytes, stripe, owner, lease_until, created_at) \
         VALUES ('pin', 'pin', 'pin', $1, 'b', $2, 0, 0, 'instance', :now, :now)";
    fixture.change(pin, params![bucket, content]).await;
    delete_and_recount(fixture, bucket, content).await
}

/// A copy refers to the content between the query of the audit and its unit.
async fn content_is_copied_during_an_audit(fixture: &Fixture) -> Damage {
    let (bucket, content) = object(fixture).await;
    fixture.change("DELETE FROM objects WHERE content_id = $1", params![content]).await;
    fixture.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![content]).await;
    let found = fixture.catalog.audit_counts(None, 9).await.expect("a page").unreferenced;
    assert_eq!(found, [content]);
    let seen = fixture.catalog.confirm_suspects(&found).await.expect("counted");
    fixture.copy((content, SIZE), bucket, "b").await.expect("copied");
    fixture.catalog.condemn_unreferenced(&seen).await.expect("an answer");
    Damage::new()
}

async fn content_is_copied_after_its_delete(fixture: &Fixture) -> Damage {
    let (bucket, content) = object(fixture).await;
    assert!(fixture.delete(bucket, "a").await);
    fixture.copy((content, SIZE), bucket, "b").await.map(drop).unwrap_or_default();
    Damage::new()
}

async fn a_range_is_copied_after_its_delete(fixture: &Fixture) -> Damage {
    let (bucket, content) = object(fixture).await;
    let upload = fixture.upload(bucket, "joined").await;
    assert!(fixture.delete(bucket, "a").await);
    let part = fixture.part_of(upload, 1, (content, SIZE), PartSource::Range { offset: 0 });
    fixture.store_part(part).await.map(drop).unwrap_or_default();
    Damage::new()
}

async fn an_object_is_overwritten(fixture: &Fixture) -> Damage {
    let (bucket, _) = object(fixture).await;
    fixture.put(bucket, "a", SIZE).await;
    Damage::new()
}

async fn a_part_is_uploaded_again(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "joined").await;
    fixture.part(upload, 1, SIZE).await;
    fixture.part(upload, 1, SIZE).await;
    Damage::new()
}

async fn an_object_is_deleted(fixture: &Fixture) -> Damage {
    let (bucket, _) = object(fixture).await;
    assert!(fixture.delete(bucket, "a").await);
    Damage::new()
}
