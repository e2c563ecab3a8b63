//! Guards of lifecycle rules: the unit that removes objects or aborts uploads checks version, age, tags and rules
//! again.

use std::time::Duration;

use s3o_model::ids::BucketId;
use s3o_model::lifecycle::{Expiration, Filter, Form, Rule, Status, Threshold};
use s3o_model::object::Tags;

use super::Cut::{Guard, Words};
use super::{Damage, damage_if, guards};
use crate::conformance::fixture::Fixture;
use crate::{Authority, DueBatch, DueObject, DueRange};

const NEW_OBJECT: &str = "an object was removed that was written after the selection";
const NOT_DUE: &str = "an object was removed that is not due under the current rules";
const RETAGGED: &str = "an object was removed whose tags had changed";
const REPLACED_RULES: &str = "an object was removed by replaced rules";
const UPLOAD_NOT_DUE: &str = "an upload was aborted that is not due under the current rules";
const UPLOAD_REPLACED_RULES: &str = "an upload was aborted by replaced rules";
const CLOSED_UPLOAD: &str = "a completed upload was aborted";

guards! { [sqlite]
    a_rule_removes_only_the_version_it_selected in an_object_is_overwritten: "delete_due",
        [Words("(key, version_id) IN (SELECT t.value ->> 0, t.value ->> 1 ", "key IN (SELECT t.value ->> 0 ")],
        [NEW_OBJECT];
    a_rule_removes_only_objects_that_are_old_enough in the_age_is_raised: "delete_due",
        [Words("last_modified <= :now / $4 * $4 - $5", "$4 <> $5")], [NOT_DUE];
    a_rule_removes_nothing_before_its_date in the_date_is_postponed: "delete_due",
        [Words(":now >= $6", "$6 > 0")], [NOT_DUE];
    a_rule_removes_only_objects_with_the_tags_it_selected in an_object_is_retagged: "delete_due",
        [Words("(key, version_id, tags) IN (SELECT t.value ->> 0, t.value ->> 1, t.value ->> 2 ",
          "(key, version_id) IN (SELECT t.value ->> 0, t.value ->> 1 ")], [RETAGGED];
    objects_are_removed_only_under_current_rules in rules_are_replaced: "delete_due",
        [Words("AND lifecycle_revision = $2", "AND $2 >= 0")], [REPLACED_RULES];
    replaced_rules_fail_the_unit in rules_are_replaced: "delete_due",
        [Guard("lifecycle_revision = $2")], [REPLACED_RULES];
    a_rule_aborts_only_uploads_that_are_old_enough in the_age_of_uploads_is_raised: "abort_due",
        [Words("created_at <= :now / $2 * $2 - $3", "$2 <> $3")], [UPLOAD_NOT_DUE];
    uploads_are_aborted_only_under_current_rules in rules_of_uploads_are_replaced: "abort_due",
        [Words("lifecycle_revision = $2", "$2 >= 0")], [UPLOAD_REPLACED_RULES];
    a_rule_aborts_only_open_uploads in an_upload_is_completed: "abort_due",
        [Words("WHERE id = $1 AND state = 'open' /*lock*/", "WHERE id = $1 /*lock*/"),
         Words("WHERE id = $1 AND state = 'open' AND", "WHERE id = $1 AND")], [CLOSED_UPLOAD];
}

const DAY: Duration = Duration::from_hours(24);

fn older(days: u32) -> Threshold {
    Expiration::OlderThanDays(days).threshold()
}

/// Selects the two days old object `a` in a bucket with rules; returns bucket, revision of the rules and selection.
async fn select_due(fixture: &Fixture) -> (BucketId, i64, Vec<DueObject>) {
    let bucket = fixture.bucket("data").await;
    set_rules(fixture, bucket).await;
    fixture.put(bucket, "a", 5).await;
    fixture.clock.advance(DAY * 2);
    let range = DueRange { bucket, from: String::new(), before: None, threshold: older(1) };
    let due = fixture.catalog.due_objects(&range, 9).await.expect("an answer").objects;
    assert_eq!(due.len(), 1);
    let revision = fixture.catalog.ruled_bucket("", &[]).await.expect("an answer").expect("rules").revision;
    (bucket, revision, due)
}

async fn set_rules(fixture: &Fixture, bucket: BucketId) {
    let rule = Rule {
        id: "all".to_owned(),
        status: Status::Enabled,
        filter: Filter::default(),
        form: Form::Plain,
        expiration: Some(Expiration::Days(1)),
        abort_after_days: Some(1),
    };
    fixture.catalog.set_lifecycle(bucket, Some(&[rule])).await.expect("set");
}

/// Removes what was selected; true if the object `a` no longer exists.
async fn removes(fixture: &Fixture, (bucket, revision, due): &(BucketId, i64, Vec<DueObject>), by: Threshold) -> bool {
    remove(fixture, (*bucket, *revision, due), by, false).await
}

async fn remove(
    fixture: &Fixture,
    selected: (BucketId, i64, &[DueObject]),
    threshold: Threshold,
    by_tags: bool,
) -> bool {
    let (bucket, revision, objects) = selected;
    let batch = DueBatch { bucket, authority: Authority::Bucket(revision), threshold, objects, by_tags };
    fixture.catalog.delete_due(&batch, fixture.token()).await.map(drop).unwrap_or_default();
    fixture.resolve("data", "a").await.object.is_none()
}

async fn an_object_is_overwritten(fixture: &Fixture) -> Damage {
    let selected = select_due(fixture).await;
    fixture.put(selected.0, "a", 5).await;
    // Under a rule with a date, even the new version is due.
    let date = Expiration::Date(fixture.now()).threshold();
    damage_if(removes(fixture, &selected, date).await, NEW_OBJECT)
}

async fn the_age_is_raised(fixture: &Fixture) -> Damage {
    let selected = select_due(fixture).await;
    damage_if(removes(fixture, &selected, older(30)).await, NOT_DUE)
}

async fn the_date_is_postponed(fixture: &Fixture) -> Damage {
    let selected = select_due(fixture).await;
    let tomorrow = Expiration::Date(fixture.now().after(DAY)).threshold();
    damage_if(removes(fixture, &selected, tomorrow).await, NOT_DUE)
}

async fn an_object_is_retagged(fixture: &Fixture) -> Damage {
    let (bucket, revision, due) = select_due(fixture).await;
    let object = fixture.resolve("data", "a").await.object.expect("an object");
    let keep = Tags::from([("keep".to_owned(), "yes".to_owned())]);
    fixture.catalog.set_object_tags(&object, &keep).await.expect("tagged");
    damage_if(remove(fixture, (bucket, revision, &due), older(1), true).await, RETAGGED)
}

async fn rules_are_replaced(fixture: &Fixture) -> Damage {
    let selected = select_due(fixture).await;
    fixture.catalog.set_lifecycle(selected.0, None).await.expect("removed");
    damage_if(removes(fixture, &selected, older(1)).await, REPLACED_RULES)
}

/// An upload that is two days old, in a bucket with rules.
async fn old_upload(fixture: &Fixture) -> (BucketId, s3o_model::ids::UploadId) {
    let bucket = fixture.bucket("data").await;
    set_rules(fixture, bucket).await;
    let upload = fixture.upload(bucket, "a").await;
    fixture.clock.advance(DAY * 2);
    (bucket, upload)
}

async fn aborts(fixture: &Fixture, upload: s3o_model::ids::UploadId, threshold: Threshold) -> bool {
    matches!(fixture.catalog.abort_due(upload, 1, threshold).await, Ok(Some(_)))
}

async fn the_age_of_uploads_is_raised(fixture: &Fixture) -> Damage {
    let (_, upload) = old_upload(fixture).await;
    damage_if(aborts(fixture, upload, Expiration::Days(30).threshold()).await, UPLOAD_NOT_DUE)
}

async fn rules_of_uploads_are_replaced(fixture: &Fixture) -> Damage {
    let (bucket, upload) = old_upload(fixture).await;
    fixture.catalog.set_lifecycle(bucket, None).await.expect("removed");
    damage_if(aborts(fixture, upload, Expiration::Days(1).threshold()).await, UPLOAD_REPLACED_RULES)
}

async fn an_upload_is_completed(fixture: &Fixture) -> Damage {
    let (_, upload) = old_upload(fixture).await;
    let parts = [fixture.part(upload, 1, 5).await];
    fixture.complete(upload, &parts).await.expect("completed");
    damage_if(aborts(fixture, upload, Expiration::Days(1).threshold()).await, CLOSED_UPLOAD)
}
