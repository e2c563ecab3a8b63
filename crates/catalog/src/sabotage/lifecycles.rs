//! What keeps a lifecycle rule from removing what it does not mean.

use std::time::Duration;

use s3o_model::ids::BucketId;
use s3o_model::lifecycle::{Expiration, Filter, Form, Rule, Status, Threshold};
use s3o_model::object::Tags;

use super::Cut::{Guard, Words};
use super::{Told, safeties, told};
use crate::conformance::scene::Scene;
use crate::{Authority, DueBatch, DueObject, DueRange, Lifecycles, Objects};

const NEW_OBJECT: &str = "an object was removed that was written after the look";
const YOUNG: &str = "an object was removed that no rule in force takes for due";
const RETAGGED: &str = "an object was removed that has other tags";
const OLD_RULES: &str = "an object was removed by rules that were replaced";
const YOUNG_UPLOAD: &str = "an upload was aborted that no rule in force takes for due";
const OLD_RULES_UPLOAD: &str = "an upload was aborted by rules that were replaced";
const CLOSED_UPLOAD: &str = "a completed upload was aborted";

safeties! { [sqlite]
    a_rule_removes_the_version_it_saw by an_object_is_written_again: "delete_due",
        [Words("(key, version_id) IN (SELECT t.value ->> 0, t.value ->> 1 ", "key IN (SELECT t.value ->> 0 ")],
        [NEW_OBJECT];
    a_rule_removes_what_is_old_enough by the_age_is_raised: "delete_due",
        [Words("last_modified <= :now / $4 * $4 - $5", "$4 <> $5")], [YOUNG];
    a_rule_removes_nothing_before_its_date by the_date_is_put_off: "delete_due",
        [Words(":now >= $6", "$6 > 0")], [YOUNG];
    a_rule_removes_what_has_the_tags_it_saw by an_object_gets_other_tags: "delete_due",
        [Words("(key, version_id, tags) IN (SELECT t.value ->> 0, t.value ->> 1, t.value ->> 2 ",
          "(key, version_id) IN (SELECT t.value ->> 0, t.value ->> 1 ")], [RETAGGED];
    the_rules_in_force_decide by rules_are_replaced: "delete_due",
        [Words("AND lifecycle_revision = $2", "AND $2 >= 0")], [OLD_RULES];
    rules_that_are_not_in_force_remove_nothing by rules_are_replaced: "delete_due",
        [Guard("lifecycle_revision = $2")], [OLD_RULES];
    a_rule_aborts_what_is_old_enough by the_age_of_uploads_is_raised: "abort_due",
        [Words("created_at <= :now / $2 * $2 - $3", "$2 <> $3")], [YOUNG_UPLOAD];
    the_rules_in_force_decide_of_uploads by rules_of_uploads_are_replaced: "abort_due",
        [Words("lifecycle_revision = $2", "$2 >= 0")], [OLD_RULES_UPLOAD];
    a_rule_aborts_what_is_open by an_upload_is_completed: "abort_due",
        [Words("WHERE id = $1 AND state = 'open' /*lock*/", "WHERE id = $1 /*lock*/"),
         Words("WHERE id = $1 AND state = 'open' AND", "WHERE id = $1 AND")], [CLOSED_UPLOAD];
}

const DAY: Duration = Duration::from_hours(24);

fn older(days: u32) -> Threshold {
    Expiration::OlderThanDays(days).threshold()
}

/// A bucket with rules, an object `a` that is two days old, and what a look found.
async fn looked_at(scene: &Scene) -> (BucketId, i64, Vec<DueObject>) {
    let bucket = scene.bucket("house").await;
    set_rules(scene, bucket).await;
    scene.put(bucket, "a", 5).await;
    scene.clock.advance(DAY * 2);
    let range = DueRange { bucket, from: String::new(), before: None, threshold: older(1) };
    let found = scene.catalog.due_objects(&range, 9).await.expect("a look").objects;
    assert_eq!(found.len(), 1);
    let revision = scene.catalog.ruled_bucket("", &[]).await.expect("a look").expect("ruled").revision;
    (bucket, revision, found)
}

async fn set_rules(scene: &Scene, bucket: BucketId) {
    let rule = Rule {
        id: "all".to_owned(),
        status: Status::Enabled,
        filter: Filter::default(),
        form: Form::Plain,
        expiration: Some(Expiration::Days(1)),
        abort_after_days: Some(1),
    };
    scene.catalog.set_lifecycle(bucket, Some(&[rule])).await.expect("set");
}

/// Whether the object `a` is gone once what was found is removed.
async fn removes(scene: &Scene, (bucket, revision, found): &(BucketId, i64, Vec<DueObject>), by: Threshold) -> bool {
    remove(scene, (*bucket, *revision, found), by, false).await
}

async fn remove(scene: &Scene, seen: (BucketId, i64, &[DueObject]), threshold: Threshold, by_tags: bool) -> bool {
    let (bucket, revision, objects) = seen;
    let batch = DueBatch { bucket, authority: Authority::Bucket(revision), threshold, objects, by_tags };
    scene.catalog.delete_due(&batch, scene.token()).await.map(drop).unwrap_or_default();
    scene.resolve("house", "a").await.object.is_none()
}

async fn an_object_is_written_again(scene: &Scene) -> Told {
    let seen = looked_at(scene).await;
    scene.put(seen.0, "a", 5).await;
    // A date takes even what was written just now for due.
    let date = Expiration::Date(scene.now()).threshold();
    told(removes(scene, &seen, date).await, NEW_OBJECT)
}

async fn the_age_is_raised(scene: &Scene) -> Told {
    let seen = looked_at(scene).await;
    told(removes(scene, &seen, older(30)).await, YOUNG)
}

async fn the_date_is_put_off(scene: &Scene) -> Told {
    let seen = looked_at(scene).await;
    let tomorrow = Expiration::Date(scene.now().after(DAY)).threshold();
    told(removes(scene, &seen, tomorrow).await, YOUNG)
}

async fn an_object_gets_other_tags(scene: &Scene) -> Told {
    let (bucket, revision, found) = looked_at(scene).await;
    let object = scene.resolve("house", "a").await.object.expect("there");
    let keep = Tags::from([("keep".to_owned(), "yes".to_owned())]);
    scene.catalog.set_object_tags(&object, &keep).await.expect("tagged");
    told(remove(scene, (bucket, revision, &found), older(1), true).await, RETAGGED)
}

async fn rules_are_replaced(scene: &Scene) -> Told {
    let seen = looked_at(scene).await;
    scene.catalog.set_lifecycle(seen.0, None).await.expect("removed");
    told(removes(scene, &seen, older(1)).await, OLD_RULES)
}

/// An upload of the day before yesterday in a bucket with rules.
async fn old_upload(scene: &Scene) -> (BucketId, s3o_model::ids::UploadId) {
    let bucket = scene.bucket("house").await;
    set_rules(scene, bucket).await;
    let upload = scene.upload(bucket, "a").await;
    scene.clock.advance(DAY * 2);
    (bucket, upload)
}

async fn aborts(scene: &Scene, upload: s3o_model::ids::UploadId, threshold: Threshold) -> bool {
    matches!(scene.catalog.abort_due(upload, 1, threshold).await, Ok(Some(_)))
}

async fn the_age_of_uploads_is_raised(scene: &Scene) -> Told {
    let (_, upload) = old_upload(scene).await;
    told(aborts(scene, upload, Expiration::Days(30).threshold()).await, YOUNG_UPLOAD)
}

async fn rules_of_uploads_are_replaced(scene: &Scene) -> Told {
    let (bucket, upload) = old_upload(scene).await;
    scene.catalog.set_lifecycle(bucket, None).await.expect("removed");
    told(aborts(scene, upload, Expiration::Days(1).threshold()).await, OLD_RULES_UPLOAD)
}

async fn an_upload_is_completed(scene: &Scene) -> Told {
    let (_, upload) = old_upload(scene).await;
    let parts = [scene.part(upload, 1, 5).await];
    scene.complete(upload, &parts).await.expect("completed");
    told(aborts(scene, upload, Expiration::Days(1).threshold()).await, CLOSED_UPLOAD)
}
