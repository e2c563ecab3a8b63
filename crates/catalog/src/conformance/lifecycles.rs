//! Facts about lifecycle rules: what is due is found, and goes only if nothing about it changed.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::BucketId;
use s3o_model::lifecycle::{DAY_MILLIS, Expiration, Filter, Form, Rule, Status, Threshold};
use s3o_model::object::Tags;

use super::races::{ROUNDS, both, nothing_leaks};
use super::refused;
use super::scene::{Scene, Standing, bucket_name, key};
use crate::{Authority, Buckets, DueBatch, DueObject, DueRange, Error, Lifecycles, Objects, Uploads, Verdict, params};

const DAY: Duration = Duration::from_hours(24);
const LIMIT: usize = 1000;

/// A rule about keys that start with `tmp/`.
fn rule(expiration: Expiration) -> Rule {
    Rule {
        id: "tmp".to_owned(),
        status: Status::Enabled,
        filter: Filter { prefix: Some("tmp/".to_owned()), ..Filter::default() },
        form: Form::Plain,
        expiration: Some(expiration),
        abort_after_days: None,
    }
}

fn older(days: u32) -> Threshold {
    Expiration::OlderThanDays(days).threshold()
}

fn all_of(bucket: BucketId, threshold: Threshold) -> DueRange {
    DueRange { bucket, from: String::new(), before: None, threshold }
}

async fn due(scene: &Scene, range: &DueRange) -> Vec<DueObject> {
    scene.catalog.due_objects(range, LIMIT).await.expect("a page").objects
}

fn keys(objects: &[DueObject]) -> Vec<&str> {
    objects.iter().map(|object| object.key.as_str()).collect()
}

fn batch(bucket: BucketId, objects: &[DueObject], threshold: Threshold) -> DueBatch<'_> {
    DueBatch { bucket, authority: Authority::Configuration, threshold, objects, by_tags: false }
}

/// How many of them went.
async fn delete(scene: &Scene, batch: &DueBatch<'_>) -> Result<usize, Error> {
    scene.catalog.delete_due(batch, scene.token()).await.map(|gone| gone.len())
}

/// Objects under these keys, two days old.
async fn aged(scene: &Scene, bucket: BucketId, names: &[&str]) {
    for name in names {
        scene.put(bucket, name, 5).await;
    }
    scene.clock.advance(DAY * 2);
}

/// Rules read back, are replaced as a whole and go; each change is another revision.
pub async fn rules_are_replaced_as_a_whole(scene: &Scene) {
    let bucket = scene.bucket("ruled").await;
    let looked = async || scene.catalog.ruled_bucket("", &[]).await.expect("a look");
    assert_eq!((scene.catalog.lifecycle(bucket).await.expect("a look"), looked().await), (None, None));
    let rules = [rule(Expiration::Days(1)), Rule { id: "other".to_owned(), ..rule(Expiration::Days(9)) }];
    scene.catalog.set_lifecycle(bucket, Some(&rules)).await.expect("set");
    let first = looked().await.expect("ruled");
    assert_eq!(scene.catalog.lifecycle(bucket).await.expect("a look").as_ref(), Some(&first));
    assert_eq!((first.id, first.name.as_str(), &first.rules[..]), (bucket, "ruled", &rules[..]));
    scene.catalog.set_lifecycle(bucket, None).await.expect("removed");
    assert_eq!(looked().await, None);
    scene.catalog.set_lifecycle(bucket, Some(&rules)).await.expect("set");
    assert!(looked().await.expect("ruled").revision > first.revision, "the same rules again are not the ones before");
}

/// A bucket takes its rules along; one of the same name has none.
pub async fn rules_go_with_their_bucket(scene: &Scene) {
    let bucket = scene.bucket("ruled").await;
    scene.catalog.set_lifecycle(bucket, Some(&[rule(Expiration::Days(1))])).await.expect("set");
    scene.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(scene.catalog.set_lifecycle(bucket, None).await, Verdict::NoSuchBucket);
    refused(scene.catalog.lifecycle(bucket).await, Verdict::NoSuchBucket);
    let again = scene.bucket("ruled").await;
    assert_eq!(scene.catalog.lifecycle(again).await.expect("a look"), None);
}

/// Buckets with rules come one by one, and those that the configuration names, if they are there.
pub async fn ruled_buckets_come_by_name(scene: &Scene) {
    for name in ["cats", "ants", "dogs", "bees"] {
        let bucket = scene.bucket(name).await;
        if name != "bees" && name != "dogs" {
            scene.catalog.set_lifecycle(bucket, Some(&[rule(Expiration::Days(1))])).await.expect("set");
        }
    }
    let mut found = Vec::new();
    let mut after = String::new();
    while let Some(bucket) = scene.catalog.ruled_bucket(&after, &["bees", "gone"]).await.expect("a look") {
        bucket.name.as_str().clone_into(&mut after);
        found.push((after.clone(), bucket.rules.len()));
    }
    assert_eq!(found, [("ants".to_owned(), 1), ("bees".to_owned(), 0), ("cats".to_owned(), 1)]);
}

/// Every look at a key and every write of one tells which rules stand, so that nobody has to ask.
pub async fn looks_and_commits_tell_which_rules_stand(scene: &Scene) {
    let bucket = scene.bucket("told").await;
    let rules = [rule(Expiration::Days(1))];
    for set in [None, Some(&rules[..]), Some(&rules[..]), None, Some(&rules[..])] {
        scene.catalog.set_lifecycle(bucket, set).await.expect("set");
        let stand = scene.catalog.lifecycle(bucket).await.expect("a look").map(|ruled| ruled.revision);
        assert_eq!(stand.is_some(), set.is_some());
        let put = scene.commit(&scene.staged(bucket, "a", 5).await, WriteCondition::None).await.expect("written");
        let found = scene.resolve("told", "a").await;
        let content = found.object.expect("there").content;
        let copied = scene.copy((content, 5), bucket, "b").await.expect("copied");
        let upload = scene.upload(bucket, "c").await;
        let parts = [scene.part(upload, 1, 5).await];
        let completion = scene.completion(upload, &parts).await;
        let completed = scene.catalog.complete_upload(completion).await.expect("completed");
        let nothing = scene.resolve("told", "nothing").await;
        assert_eq!([put.rules, copied.rules, completed.rules, found.rules, nothing.rules], [stand; 5]);
    }
}

/// The catalog finds due what the model takes for due, around every edge.
pub async fn what_is_due_is_what_the_model_says(scene: &Scene) {
    let bucket = scene.bucket("due").await;
    let date = |days| Expiration::Date(s3o_model::clock::Timestamp::from_millis(days * DAY_MILLIS));
    let today = scene.now().millis() / DAY_MILLIS;
    let rules = [Expiration::Days(1), Expiration::Days(2), Expiration::OlderThanDays(1), date(today + 2), date(0)];
    scene.put(bucket, "a", 1).await;
    let written = scene.resolve("due", "a").await.object.expect("there").last_modified;
    let mut moments: Vec<i64> = rules.iter().map(|rule| rule.threshold().due_at(written).millis()).collect();
    moments.sort_unstable();
    for moment in moments.into_iter().flat_map(|moment| [moment - 1, moment, moment + 1]) {
        let ahead = u64::try_from(moment - scene.now().millis()).unwrap_or(0);
        scene.clock.advance(Duration::from_millis(ahead));
        for rule in rules {
            let found = due(scene, &all_of(bucket, rule.threshold())).await.len() == 1;
            assert_eq!(found, rule.threshold().is_due(written, scene.now()), "{rule:?} at {}", scene.now());
        }
    }
}

/// A range is read page by page, however few of its objects are due.
pub async fn due_objects_come_in_pages(scene: &Scene) {
    let bucket = scene.bucket("pages").await;
    aged(scene, bucket, &["a", "b", "e", "f", "g"]).await;
    for young in ["c", "d", "z"] {
        scene.put(bucket, young, 5).await;
    }
    let mut range = DueRange { before: Some("h".to_owned()), ..all_of(bucket, older(1)) };
    let mut pages = Vec::new();
    loop {
        let page = scene.catalog.due_objects(&range, 3).await.expect("a page");
        pages.push(keys(&page.objects).join(""));
        match page.next {
            Some(next) => range.from = next,
            None => break,
        }
    }
    assert_eq!(pages, ["ab", "ef", "g"]);
    let open = DueRange { from: "g".to_owned(), ..all_of(bucket, older(1)) };
    assert_eq!(keys(&due(scene, &open).await), ["g"]);
}

/// A prefix is its bytes: no other case, no sign stands for another.
pub async fn a_prefix_is_its_bytes(scene: &Scene) {
    let bucket = scene.bucket("bytes").await;
    aged(scene, bucket, &["tmp/a", "TMP/a", "tmp2/a", "tmp", "tmp/", "tmpX", "Tmp/a"]).await;
    let filter = rule(Expiration::Days(1)).filter;
    let range = DueRange { from: filter.prefix().to_owned(), before: filter.before(), ..all_of(bucket, older(1)) };
    assert_eq!(keys(&due(scene, &range).await), ["tmp/", "tmp/a"]);
}

/// What has expired is gone already, and left to whoever removes that.
pub async fn what_has_expired_is_not_due(scene: &Scene) {
    let bucket = scene.bucket("expired").await;
    aged(scene, bucket, &["a", "b"]).await;
    scene.change("UPDATE objects SET expires_at = :now WHERE key = 'a'", vec![]).await;
    assert_eq!(keys(&due(scene, &all_of(bucket, older(1))).await), ["b"]);
}

/// The rows go, their bytes are queued with the reason, writes under way are flagged.
pub async fn what_is_due_goes_with_its_bytes(scene: &Scene) {
    let bucket = scene.bucket("going").await;
    aged(scene, bucket, &["a", "b"]).await;
    scene.staged(bucket, "a", 3).await;
    scene.put(bucket, "young", 5).await;
    let found = due(scene, &all_of(bucket, older(1))).await;
    assert_eq!(delete(scene, &batch(bucket, &found, older(1))).await.expect("deleted"), 2);
    assert_eq!(delete(scene, &batch(bucket, &found, older(1))).await.expect("deleted"), 0, "once");
    assert_eq!((scene.resolve("going", "a").await.object, scene.booked().await), (None, (5, 10, 3)));
    assert!(scene.resolve("going", "young").await.object.is_some());
    assert_eq!(scene.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'lifecycle'").await, 2);
    assert_eq!(scene.number("SELECT count(*) FROM pending_objects WHERE superseded = 1").await, 1);
}

/// Bytes that another object refers to stay.
pub async fn shared_bytes_stay(scene: &Scene) {
    let bucket = scene.bucket("shared").await;
    let content = scene.put(bucket, "a", 5).await;
    scene.clock.advance(DAY * 2);
    scene.copy((content, 5), bucket, "b").await.expect("copied");
    let found = due(scene, &all_of(bucket, older(1))).await;
    assert_eq!(delete(scene, &batch(bucket, &found, older(1))).await.expect("deleted"), 1);
    assert_eq!((scene.standing(content).await, scene.queued().await.len()), (Standing::Live(1), 0));
}

/// A thousand go in one unit.
pub async fn a_thousand_due_objects_go_at_once(scene: &Scene) {
    let bucket = scene.bucket("many").await;
    let content = scene.put(bucket, "first", 1).await;
    for number in 1..LIMIT {
        scene.copy((content, 1), bucket, &format!("k{number}")).await.expect("copied");
    }
    scene.clock.advance(DAY * 2);
    let found = due(scene, &all_of(bucket, older(1))).await;
    let before = scene.catalog.effort().units;
    assert_eq!(delete(scene, &batch(bucket, &found, older(1))).await.expect("deleted"), LIMIT);
    assert_eq!((scene.catalog.effort().units - before, scene.standing(content).await), (1, Standing::Condemned));
}

/// An object that was written again after the look is another one.
pub async fn an_overwritten_object_stays(scene: &Scene) {
    let bucket = scene.bucket("overwritten").await;
    aged(scene, bucket, &["a", "b"]).await;
    let found = due(scene, &all_of(bucket, older(1))).await;
    scene.put(bucket, "a", 7).await;
    // As old as the one before, as a restored clock would make it.
    scene.change("UPDATE objects SET last_modified = 0", vec![]).await;
    assert_eq!(delete(scene, &batch(bucket, &found, older(1))).await.expect("deleted"), 1);
    assert_eq!(scene.resolve("overwritten", "a").await.object.expect("it stays").size_bytes, 7);
}

/// What the rule in force does not take for due stays, whatever was found before.
pub async fn what_is_not_due_any_more_stays(scene: &Scene) {
    let bucket = scene.bucket("later").await;
    aged(scene, bucket, &["a"]).await;
    let found = due(scene, &all_of(bucket, older(1))).await;
    let tomorrow = Expiration::Date(scene.now().after(DAY)).threshold();
    for in_force in [older(30), Expiration::Days(2).threshold(), tomorrow] {
        assert_eq!(delete(scene, &batch(bucket, &found, in_force)).await.expect("nothing"), 0, "{in_force:?}");
    }
    assert_eq!(delete(scene, &batch(bucket, &found, older(1))).await.expect("deleted"), 1);
}

/// New tags make no new version, so a rule that asks for tags looks at them again.
pub async fn an_object_with_other_tags_stays(scene: &Scene) {
    let bucket = scene.bucket("tagged").await;
    aged(scene, bucket, &["a", "b"]).await;
    let found = due(scene, &all_of(bucket, older(1))).await;
    let object = scene.resolve("tagged", "a").await.object.expect("there");
    let tags = Tags::from([("keep".to_owned(), "\"ä\u{1}".to_owned())]);
    scene.catalog.set_object_tags(&object, &tags).await.expect("tagged");
    let by_tags = DueBatch { by_tags: true, ..batch(bucket, &found, older(1)) };
    assert_eq!(delete(scene, &by_tags).await.expect("deleted"), 1);
    assert!(scene.resolve("tagged", "a").await.object.is_some());
    let found = due(scene, &all_of(bucket, older(1))).await;
    assert_eq!(found[0].tags, tags);
    let by_tags = DueBatch { by_tags: true, ..batch(bucket, &found, older(1)) };
    assert_eq!(delete(scene, &by_tags).await.expect("deleted"), 1, "as they were seen now");
}

/// Nothing goes by rules that were replaced, even by the same ones, or whose bucket is gone.
pub async fn nothing_goes_by_rules_that_were_replaced(scene: &Scene) {
    let bucket = scene.bucket("replaced").await;
    aged(scene, bucket, &["a"]).await;
    let rules = [rule(Expiration::Days(1))];
    scene.catalog.set_lifecycle(bucket, Some(&rules)).await.expect("set");
    let seen = scene.catalog.ruled_bucket("", &[]).await.expect("a look").expect("ruled");
    let found = due(scene, &all_of(bucket, older(1))).await;
    let by_rule = |revision| DueBatch { authority: Authority::Bucket(revision), ..batch(bucket, &found, older(1)) };
    scene.catalog.set_lifecycle(bucket, Some(&rules)).await.expect("set");
    refused(delete(scene, &by_rule(seen.revision)).await, Verdict::RunAgain);
    scene.catalog.set_lifecycle(bucket, None).await.expect("removed");
    refused(delete(scene, &by_rule(seen.revision + 1)).await, Verdict::RunAgain);
    assert!(scene.resolve("replaced", "a").await.object.is_some());
    scene.catalog.set_lifecycle(bucket, Some(&rules)).await.expect("set");
    assert_eq!(delete(scene, &by_rule(seen.revision + 3)).await.expect("in force"), 1);
    scene.catalog.delete_bucket(bucket).await.expect("deleted");
    refused(delete(scene, &by_rule(seen.revision + 3)).await, Verdict::RunAgain);
}

/// A deletion by rule against an overwrite: the new object is there in the end.
pub async fn a_rule_meets_an_overwrite(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        aged(scene, bucket, &["a"]).await;
        let found = due(scene, &all_of(bucket, older(1))).await;
        let intent = scene.staged(bucket, "a", 7).await;
        let (ours, theirs) = (scene.clone(), scene.clone());
        let deleting = async move { delete(&ours, &batch(bucket, &found, older(1))).await.map(drop) };
        let writing = async move { theirs.commit(&intent, WriteCondition::None).await.map(drop) };
        let (deleted, written) = both(deleting, writing, round).await;
        deleted.expect("whoever is first");
        written.expect("whoever is first");
        assert_eq!(scene.resolve("race", "a").await.object.expect("written").size_bytes, 7);
    }
    nothing_leaks(scene, bucket).await;
}

/// A deletion by rule against new rules: once those are set, nothing goes by the old ones.
pub async fn a_rule_meets_its_end(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        aged(scene, bucket, &["a"]).await;
        scene.catalog.set_lifecycle(bucket, Some(&[rule(Expiration::Days(1))])).await.expect("set");
        let revision = scene.catalog.ruled_bucket("", &[]).await.expect("a look").expect("ruled").revision;
        let found = due(scene, &all_of(bucket, older(1))).await;
        let (ours, theirs) = (scene.clone(), scene.clone());
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
        assert_eq!(scene.resolve("race", "a").await.object.is_some(), was_there, "nothing went afterwards");
    }
    nothing_leaks(scene, bucket).await;
}

/// Uploads are aborted by when they were begun, once, and only while they are open and the rules stand.
pub async fn due_uploads_are_aborted(scene: &Scene) {
    let bucket = scene.bucket("uploads").await;
    let (first, second) = (scene.upload(bucket, "tmp/a").await, scene.upload(bucket, "tmp/a").await);
    let other = scene.upload(bucket, "tmp2/a").await;
    scene.part(first, 1, 3).await;
    scene.clock.advance(DAY * 2);
    let young = scene.upload(bucket, "tmp/b").await;
    scene.catalog.set_lifecycle(bucket, Some(&[rule(Expiration::Days(1))])).await.expect("set");
    let threshold = Expiration::Days(1).threshold();
    let range = DueRange { from: "tmp/".to_owned(), before: Some("tmp0".to_owned()), ..all_of(bucket, threshold) };
    let found = scene.catalog.due_uploads(&range, None, 1).await.expect("a look");
    let behind = scene.catalog.due_uploads(&range, found.last(), 9).await.expect("a look");
    let mut ids: Vec<_> = found.iter().chain(&behind).map(|upload| upload.id).collect();
    ids.sort_unstable_by_key(ToString::to_string);
    let mut expected = vec![first, second];
    expected.sort_unstable_by_key(ToString::to_string);
    assert_eq!((ids, found[0].key.clone()), (expected, key("tmp/a")));
    let abort = async |id, revision| scene.catalog.abort_due(id, revision, threshold).await;
    refused(abort(first, 0).await, Verdict::RunAgain);
    assert_eq!(abort(first, 1).await.expect("a try"), Some(3));
    assert_eq!(abort(first, 1).await.expect("a try"), None, "once");
    assert_eq!(abort(young, 1).await.expect("a try"), None, "not due");
    scene.catalog.abort_upload(second).await.expect("aborted");
    assert_eq!(scene.catalog.due_uploads(&all_of(bucket, threshold), None, 9).await.expect("a look")[0].id, other);
    scene.clean_up().await;
    assert_eq!(scene.booked().await, (0, 0, 0));
    assert!(scene.catalog.bucket(&bucket_name("uploads")).await.expect("a look").is_some());
}

/// An upload that was begun lately, by the catalog's clock, is not aborted though it was found before.
pub async fn an_upload_that_is_not_due_goes_on(scene: &Scene) {
    let bucket = scene.bucket("uploads").await;
    let upload = scene.upload(bucket, "a").await;
    scene.catalog.set_lifecycle(bucket, Some(&[rule(Expiration::Days(1))])).await.expect("set");
    scene.clock.advance(DAY * 2);
    let range = all_of(bucket, Expiration::Days(1).threshold());
    assert_eq!(scene.catalog.due_uploads(&range, None, 9).await.expect("a look").len(), 1);
    scene.change("UPDATE multipart_uploads SET created_at = :now WHERE bucket_id = $1", params![bucket]).await;
    assert_eq!(scene.catalog.abort_due(upload, 1, range.threshold).await.expect("a try"), None);
}
