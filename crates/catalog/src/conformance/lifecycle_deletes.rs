//! Tests of deletes by lifecycle rules: an object that was listed as due is deleted only if it is unchanged and the
//! rules are still in force.

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::BucketId;
use s3o_model::lifecycle::{Expiration, Threshold};
use s3o_model::object::Tags;

use super::fixture::{ContentStanding, Fixture, bucket_name, key};
use super::lifecycles::{DAY, LIMIT, aged, all_of, due, older, rule};
use super::races::{ROUNDS, assert_nothing_leaks, both};
use super::refused;
use crate::{Authority, DueBatch, DueObject, DueRange, Error, Verdict, params};

fn batch(bucket: BucketId, objects: &[DueObject], threshold: Threshold) -> DueBatch<'_> {
    DueBatch { bucket, authority: Authority::Configuration, threshold, objects, by_tags: false }
}

/// Returns how many objects were deleted.
async fn delete(fixture: &Fixture, batch: &DueBatch<'_>) -> Result<usize, Error> {
    fixture.catalog.delete_due(batch, fixture.token()).await.map(|deleted| deleted.len())
}

/// Bytes are queued with the reason `lifecycle`, and open intents are flagged as superseded.
pub async fn due_objects_are_deleted_with_their_bytes(fixture: &Fixture) {
    let bucket = fixture.bucket("going").await;
    aged(fixture, bucket, &["a", "b"]).await;
    fixture.staged(bucket, "a", 3).await;
    fixture.put(bucket, "young", 5).await;
    let found = due(fixture, &all_of(bucket, older(1))).await;
    assert_eq!(delete(fixture, &batch(bucket, &found, older(1))).await.expect("deleted"), 2);
    assert_eq!(delete(fixture, &batch(bucket, &found, older(1))).await.expect("deleted"), 0, "once");
    assert_eq!((fixture.resolve("going", "a").await.object, fixture.usage().await), (None, (5, 10, 3)));
    assert!(fixture.resolve("going", "young").await.object.is_some());
    assert_eq!(fixture.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'lifecycle'").await, 2);
    assert_eq!(fixture.number("SELECT count(*) FROM pending_objects WHERE superseded = 1").await, 1);
}

/// Content that a younger object refers to stays live.
pub async fn shared_bytes_are_kept(fixture: &Fixture) {
    let bucket = fixture.bucket("shared").await;
    let content = fixture.put(bucket, "a", 5).await;
    fixture.clock.advance(DAY * 2);
    fixture.copy((content, 5), bucket, "b").await.expect("copied");
    let found = due(fixture, &all_of(bucket, older(1))).await;
    assert_eq!(delete(fixture, &batch(bucket, &found, older(1))).await.expect("deleted"), 1);
    assert_eq!((fixture.standing(content).await, fixture.queued().await.len()), (ContentStanding::Live(1), 0));
}

/// They share one content, which is condemned.
pub async fn thousand_due_objects_are_deleted_in_one_unit(fixture: &Fixture) {
    let bucket = fixture.bucket("many").await;
    let content = fixture.put(bucket, "first", 1).await;
    for number in 1..LIMIT {
        fixture.copy((content, 1), bucket, &format!("k{number}")).await.expect("copied");
    }
    fixture.clock.advance(DAY * 2);
    let found = due(fixture, &all_of(bucket, older(1))).await;
    let before = fixture.catalog.effort().units;
    assert_eq!(delete(fixture, &batch(bucket, &found, older(1))).await.expect("deleted"), LIMIT);
    assert_eq!(
        (fixture.catalog.effort().units - before, fixture.standing(content).await),
        (1, ContentStanding::Condemned)
    );
}

/// The new version is kept even if its `last_modified` is as old as that of the listed one.
pub async fn overwritten_object_is_kept(fixture: &Fixture) {
    let bucket = fixture.bucket("overwritten").await;
    aged(fixture, bucket, &["a", "b"]).await;
    let found = due(fixture, &all_of(bucket, older(1))).await;
    fixture.put(bucket, "a", 7).await;
    // As old as the listed version, as if the clock had been set back.
    fixture.change("UPDATE objects SET last_modified = 0", vec![]).await;
    assert_eq!(delete(fixture, &batch(bucket, &found, older(1))).await.expect("deleted"), 1);
    assert_eq!(fixture.resolve("overwritten", "a").await.object.expect("it stays").size_bytes, 7);
}

/// The threshold of the delete counts, not the one of the listing.
pub async fn object_not_due_by_current_rule_is_kept(fixture: &Fixture) {
    let bucket = fixture.bucket("later").await;
    aged(fixture, bucket, &["a"]).await;
    let found = due(fixture, &all_of(bucket, older(1))).await;
    let tomorrow = Expiration::Date(fixture.now().after(DAY)).threshold();
    for in_force in [older(30), Expiration::Days(2).threshold(), tomorrow] {
        assert_eq!(delete(fixture, &batch(bucket, &found, in_force)).await.expect("nothing"), 0, "{in_force:?}");
    }
    assert_eq!(delete(fixture, &batch(bucket, &found, older(1))).await.expect("deleted"), 1);
}

/// New tags create no new version, so a rule with a tag filter compares the tags again.
pub async fn object_with_changed_tags_is_kept(fixture: &Fixture) {
    let bucket = fixture.bucket("tagged").await;
    aged(fixture, bucket, &["a", "b"]).await;
    let found = due(fixture, &all_of(bucket, older(1))).await;
    let object = fixture.resolve("tagged", "a").await.object.expect("there");
    let tags = Tags::from([("keep".to_owned(), "\"ä\u{1}".to_owned())]);
    fixture.catalog.set_object_tags(&object, &tags).await.expect("tagged");
    let by_tags = DueBatch { by_tags: true, ..batch(bucket, &found, older(1)) };
    assert_eq!(delete(fixture, &by_tags).await.expect("deleted"), 1);
    assert!(fixture.resolve("tagged", "a").await.object.is_some());
    let found = due(fixture, &all_of(bucket, older(1))).await;
    assert_eq!(found[0].tags, tags);
    let by_tags = DueBatch { by_tags: true, ..batch(bucket, &found, older(1)) };
    assert_eq!(delete(fixture, &by_tags).await.expect("deleted"), 1, "the tags are those that were listed");
}

/// A delete with an old revision or in a deleted bucket gets `RunAgain`, even if the same rules were set again.
pub async fn replaced_rules_delete_nothing(fixture: &Fixture) {
    let bucket = fixture.bucket("replaced").await;
    aged(fixture, bucket, &["a"]).await;
    let rules = [rule(Expiration::Days(1))];
    fixture.catalog.set_lifecycle(bucket, Some(&rules)).await.expect("set");
    let seen = fixture.catalog.ruled_bucket("", &[]).await.expect("a query").expect("ruled");
    let found = due(fixture, &all_of(bucket, older(1))).await;
    let by_rule = |revision| DueBatch { authority: Authority::Bucket(revision), ..batch(bucket, &found, older(1)) };
    fixture.catalog.set_lifecycle(bucket, Some(&rules)).await.expect("set");
    refused(delete(fixture, &by_rule(seen.revision)).await, Verdict::RunAgain);
    fixture.catalog.set_lifecycle(bucket, None).await.expect("removed");
    refused(delete(fixture, &by_rule(seen.revision + 1)).await, Verdict::RunAgain);
    assert!(fixture.resolve("replaced", "a").await.object.is_some());
    fixture.catalog.set_lifecycle(bucket, Some(&rules)).await.expect("set");
    assert_eq!(delete(fixture, &by_rule(seen.revision + 3)).await.expect("in force"), 1);
    fixture.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(delete(fixture, &by_rule(seen.revision + 3)).await, Verdict::RunAgain);
}

/// The commit runs before or after the delete.
pub async fn object_written_during_lifecycle_delete_is_kept(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        aged(fixture, bucket, &["a"]).await;
        let found = due(fixture, &all_of(bucket, older(1))).await;
        let intent = fixture.staged(bucket, "a", 7).await;
        let (ours, theirs) = (fixture.clone(), fixture.clone());
        let deleting = async move { delete(&ours, &batch(bucket, &found, older(1))).await.map(drop) };
        let writing = async move { theirs.commit(&intent, WriteCondition::None).await.map(drop) };
        let (deleted, written) = both(deleting, writing, round).await;
        deleted.expect("no error in either order");
        written.expect("no error in either order");
        assert_eq!(fixture.resolve("race", "a").await.object.expect("written").size_bytes, 7);
    }
    assert_nothing_leaks(fixture, bucket).await;
}

/// The object is read right after the rules were removed. If it is there then, it stays.
pub async fn delete_fails_once_rules_are_removed(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        aged(fixture, bucket, &["a"]).await;
        fixture.catalog.set_lifecycle(bucket, Some(&[rule(Expiration::Days(1))])).await.expect("set");
        let revision = fixture.catalog.ruled_bucket("", &[]).await.expect("a query").expect("ruled").revision;
        let found = due(fixture, &all_of(bucket, older(1))).await;
        let (ours, theirs) = (fixture.clone(), fixture.clone());
        let deleting = async move {
            let by_rule = DueBatch { authority: Authority::Bucket(revision), ..batch(bucket, &found, older(1)) };
            delete(&ours, &by_rule).await
        };
        let ending = async move {
            theirs.catalog.set_lifecycle(bucket, None).await.expect("removed");
            theirs.resolve("race", "a").await.object.is_some()
        };
        let (deleted, was_there) = both(deleting, ending, round).await;
        assert_eq!(deleted.is_err(), was_there, "{deleted:?}");
        assert_eq!(fixture.resolve("race", "a").await.object.is_some(), was_there, "nothing was deleted afterwards");
    }
    assert_nothing_leaks(fixture, bucket).await;
}

/// Only open uploads of this prefix are aborted, by their creation time, while the revision is in force.
pub async fn due_uploads_are_aborted_once(fixture: &Fixture) {
    let bucket = fixture.bucket("uploads").await;
    let (first, second) = (fixture.upload(bucket, "tmp/a").await, fixture.upload(bucket, "tmp/a").await);
    let other = fixture.upload(bucket, "tmp2/a").await;
    fixture.part(first, 1, 3).await;
    fixture.clock.advance(DAY * 2);
    let young = fixture.upload(bucket, "tmp/b").await;
    fixture.catalog.set_lifecycle(bucket, Some(&[rule(Expiration::Days(1))])).await.expect("set");
    let threshold = Expiration::Days(1).threshold();
    let range = DueRange { from: "tmp/".to_owned(), before: Some("tmp0".to_owned()), ..all_of(bucket, threshold) };
    let found = fixture.catalog.due_uploads(&range, None, 1).await.expect("a query");
    let behind = fixture.catalog.due_uploads(&range, found.last(), 9).await.expect("a query");
    let mut ids: Vec<_> = found.iter().chain(&behind).map(|upload| upload.id).collect();
    ids.sort_unstable_by_key(ToString::to_string);
    let mut expected = vec![first, second];
    expected.sort_unstable_by_key(ToString::to_string);
    assert_eq!((ids, found[0].key.clone()), (expected, key("tmp/a")));
    let abort = async |id, revision| fixture.catalog.abort_due(id, revision, threshold).await;
    refused(abort(first, 0).await, Verdict::RunAgain);
    assert_eq!(abort(first, 1).await.expect("a try"), Some(3));
    assert_eq!(abort(first, 1).await.expect("a try"), None, "once");
    assert_eq!(abort(young, 1).await.expect("a try"), None, "not due");
    fixture.catalog.abort_upload(second).await.expect("aborted");
    assert_eq!(fixture.catalog.due_uploads(&all_of(bucket, threshold), None, 9).await.expect("a query")[0].id, other);
    fixture.clean_up().await;
    assert_eq!(fixture.usage().await, (0, 0, 0));
    assert!(fixture.catalog.bucket(&bucket_name("uploads")).await.expect("a query").is_some());
}

/// `abort_due` compares the creation time again.
pub async fn upload_not_due_any_more_is_not_aborted(fixture: &Fixture) {
    let bucket = fixture.bucket("uploads").await;
    let upload = fixture.upload(bucket, "a").await;
    fixture.catalog.set_lifecycle(bucket, Some(&[rule(Expiration::Days(1))])).await.expect("set");
    fixture.clock.advance(DAY * 2);
    let range = all_of(bucket, Expiration::Days(1).threshold());
    assert_eq!(fixture.catalog.due_uploads(&range, None, 9).await.expect("a query").len(), 1);
    fixture.change("UPDATE multipart_uploads SET created_at = :now WHERE bucket_id = $1", params![bucket]).await;
    assert_eq!(fixture.catalog.abort_due(upload, 1, range.threshold).await.expect("a try"), None);
}
