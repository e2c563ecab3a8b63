//! Facts about objects: writing, copying and removing their rows.

use s3o_model::checksum::{Algorithm, Checksum, Coverage};
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::names::ObjectKey;
use s3o_model::object::{Attributes, Headers, Tags};

use super::refused;
use super::scene::{Scene, Standing, announced, at_once, backend, bucket_name, key, md5_of};
use crate::{Landed, Objects, Verdict, params};

fn everything() -> Attributes {
    let headers = Headers { content_type: Some("text/ä".into()), expires: Some("0".into()), ..Headers::default() };
    let pair = || Tags::from([("k".to_owned(), "v \"x\" \u{1}".to_owned())]);
    Attributes { headers, metadata: pair(), tags: pair() }
}

/// All that was said of an object comes back, with the places of its bytes.
pub async fn a_put_reads_back_whole(scene: &Scene) {
    let bucket = scene.bucket("whole").await;
    let intent = scene.staged(bucket, "a/ä", 9).await;
    let mut put = scene.put_of(&intent, WriteCondition::None);
    put.row.attributes = everything();
    put.row.checksum =
        Some(Checksum { algorithm: Algorithm::Crc32c, value: "AAAA".into(), coverage: Coverage::FullObject });
    let committed = scene.catalog.commit_put(put.clone()).await.expect("committed");
    assert!(!committed.displaced);
    assert_eq!(committed.last_modified.millis(), scene.now().millis() / 1000 * 1000, "S3 knows whole seconds");
    let resolved = scene.resolve("whole", "a/ä").await;
    let object = resolved.object.expect("there");
    assert_eq!((object.bucket, object.version, object.content), (bucket, put.row.version, put.content));
    assert_eq!((object.size_bytes, object.etag, object.checksum), (9, put.row.etag, put.row.checksum));
    assert_eq!((object.attributes, object.last_modified), (everything(), committed.last_modified));
    assert_eq!((object.key, object.expires_at), (key("a/ä"), None));
    let whole = resolved.whole.expect("in one piece");
    assert_eq!(whole.md5, md5_of(put.content));
    assert_eq!((whole.locations[0].backend.as_str(), &whole.locations[0].physical_key), ("disk", &intent.physical_key));
    assert_eq!(scene.booked().await, (9, 0, 0));
}

/// No bucket, no key: told apart.
pub async fn what_is_not_there_is_not_found(scene: &Scene) {
    scene.bucket("there").await;
    assert_eq!(scene.catalog.resolve(&bucket_name("never"), &key("a")).await.expect("a look"), None);
    let resolved = scene.resolve("there", "a").await;
    assert_eq!((resolved.object, resolved.whole), (None, None));
}

/// All copies of one write become places; the healthy ones come first and lost ones not at all.
pub async fn copies_become_places_best_first(scene: &Scene) {
    let bucket = scene.bucket("copies").await;
    let first = scene.intent(bucket, "a", 4);
    let mut intents = vec![first.clone()];
    for name in ["cloud", "tape"] {
        scene.attach(name, None).await;
        let other = scene.intent(bucket, "a", 4);
        intents.push(s3o_model::intent::Intent { write: first.write, backend: backend(name), ..other });
    }
    for intent in &intents {
        scene.try_stage(intent).await.expect("staged");
    }
    let mut put = scene.put_of(&first, WriteCondition::None);
    refused(scene.catalog.commit_put(put.clone()).await, Verdict::Fenced);
    put.landed = announced(first.write, 3);
    scene.catalog.commit_put(put).await.expect("committed");
    scene.change("UPDATE object_locations SET state = 'suspect' WHERE backend_name = 'cloud'", vec![]).await;
    scene.change("UPDATE object_locations SET state = 'lost' WHERE backend_name = 'disk'", vec![]).await;
    let places = scene.resolve("copies", "a").await.whole.expect("whole").locations;
    let names: Vec<&str> = places.iter().map(|place| place.backend.as_str()).collect();
    assert_eq!(names, ["tape", "cloud"]);
    assert!(scene.delete(bucket, "a").await);
    assert_eq!(scene.queued().await.len(), 3, "a lost copy may still be there");
}

/// What an overwrite displaced is condemned and queued in the same unit; its books move over.
pub async fn an_overwrite_condemns_what_it_displaced(scene: &Scene) {
    let bucket = scene.bucket("over").await;
    let intent = scene.staged(bucket, "a", 5).await;
    let mut put = scene.put_of(&intent, WriteCondition::None);
    let backend_versions = vec![(intent.id, "v1".to_owned())];
    put.landed = Landed::Announced { write: intent.write, copies: 1, backend_versions };
    let old = put.content;
    scene.catalog.commit_put(put).await.expect("committed");
    let committed = scene.commit(&scene.staged(bucket, "a", 7).await, WriteCondition::None).await.expect("committed");
    assert!(committed.displaced);
    assert_eq!(scene.standing(old).await, Standing::Condemned);
    assert_eq!(scene.booked().await, (7, 5, 0));
    let (_, claimed) = scene.claim(9).await;
    assert_eq!((claimed.len(), &claimed[0].physical_key), (1, &intent.physical_key));
    assert_eq!(claimed[0].backend_version.as_deref(), Some("v1"));
    assert_eq!(scene.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'overwrite'").await, 1);
}

/// A delete takes the row and condemns what it referred to; nothing there is not an error.
pub async fn a_delete_condemns_and_queues(scene: &Scene) {
    let bucket = scene.bucket("delete").await;
    let content = scene.put(bucket, "a", 5).await;
    assert!(!scene.delete(bucket, "b").await);
    assert!(scene.delete(bucket, "a").await);
    assert!(!scene.delete(bucket, "a").await);
    assert_eq!(scene.resolve("delete", "a").await.object, None);
    assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Condemned, (0, 5, 0)));
    assert_eq!(scene.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'delete'").await, 1);
}

/// A delete of exactly this object leaves another one alone.
pub async fn a_conditional_delete_looks_first(scene: &Scene) {
    let bucket = scene.bucket("delete").await;
    let content = scene.put(bucket, "a", 5).await;
    let other = ETag::from_text("other");
    refused(
        scene.catalog.delete_object(bucket, &key("a"), Some(&other), scene.token()).await,
        Verdict::PreconditionFailed,
    );
    refused(
        scene.catalog.delete_object(bucket, &key("b"), Some(&other), scene.token()).await,
        Verdict::PreconditionFailed,
    );
    assert_eq!(scene.standing(content).await, Standing::Live(1));
    let etag = ETag::of_whole(md5_of(content));
    assert!(scene.catalog.delete_object(bucket, &key("a"), Some(&etag), scene.token()).await.expect("deleted"));
}

/// Copies share bytes, across buckets too; the last to go condemns them.
pub async fn a_copy_shares_bytes_until_the_last_goes(scene: &Scene) {
    let (one, two) = (scene.bucket("one").await, scene.bucket("two").await);
    let content = scene.put(one, "a", 5).await;
    let committed = scene.copy((content, 5), two, "b").await.expect("copied");
    assert!(!committed.displaced);
    assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Live(2), (5, 0, 0)));
    assert!(scene.delete(one, "a").await);
    assert_eq!((scene.standing(content).await, scene.queued().await), (Standing::Live(1), vec![]));
    assert!(scene.resolve("two", "b").await.whole.is_some());
    assert!(scene.delete(two, "b").await);
    assert_eq!((scene.standing(content).await, scene.queued().await.len()), (Standing::Condemned, 1));
}

/// One more and one fewer of the same content in one unit: a copy onto itself, and onto a key
/// that already has that content.
pub async fn a_copy_onto_itself_keeps_the_count(scene: &Scene) {
    let bucket = scene.bucket("self").await;
    let content = scene.put(bucket, "a", 5).await;
    for _ in 0..3 {
        assert!(scene.copy((content, 5), bucket, "a").await.expect("copied").displaced);
        assert_eq!(scene.standing(content).await, Standing::Live(1));
    }
    scene.copy((content, 5), bucket, "b").await.expect("copied");
    scene.copy((content, 5), bucket, "b").await.expect("copied");
    assert_eq!((scene.standing(content).await, scene.queued().await), (Standing::Live(2), vec![]));
}

/// A copy over another object releases what that one had.
pub async fn a_copy_displaces_like_a_put(scene: &Scene) {
    let bucket = scene.bucket("copy").await;
    let (content, displaced) = (scene.put(bucket, "a", 5).await, scene.put(bucket, "b", 6).await);
    assert!(scene.copy((content, 5), bucket, "b").await.expect("copied").displaced);
    assert_eq!(
        (scene.standing(content).await, scene.standing(displaced).await),
        (Standing::Live(2), Standing::Condemned)
    );
    assert_eq!(scene.booked().await, (5, 6, 0));
}

/// Condemned content never comes back, and forgotten content neither.
pub async fn a_copy_of_condemned_content_resolves_again(scene: &Scene) {
    let bucket = scene.bucket("copy").await;
    let content = scene.put(bucket, "a", 5).await;
    assert!(scene.delete(bucket, "a").await);
    refused(scene.copy((content, 5), bucket, "b").await, Verdict::ResolveAgain);
    scene.clean_up().await;
    assert_eq!(scene.standing(content).await, Standing::Forgotten);
    refused(scene.copy((content, 5), bucket, "b").await, Verdict::ResolveAgain);
    assert_eq!(scene.resolve("copy", "b").await.object, None);
}

/// `IfAbsent` writes only where nothing is, for puts and for copies; a refusal changes nothing.
pub async fn if_absent_writes_only_where_nothing_is(scene: &Scene) {
    let bucket = scene.bucket("absent").await;
    let content = scene.put(bucket, "a", 5).await;
    let intent = scene.staged(bucket, "a", 7).await;
    refused(scene.commit(&intent, WriteCondition::IfAbsent).await, Verdict::PreconditionFailed);
    let row = scene.row(bucket, "a", content, 5);
    let copied = scene.catalog.commit_copy(row, content, WriteCondition::IfAbsent).await;
    refused(copied, Verdict::PreconditionFailed);
    assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Live(1), (5, 0, 7)));
    assert!(scene.delete(bucket, "a").await);
    assert!(!scene.commit(&intent, WriteCondition::IfAbsent).await.expect("committed").displaced);
}

/// `IfMatch` writes only over what it names, or over anything; never where nothing is.
pub async fn if_match_writes_only_over_what_it_names(scene: &Scene) {
    let bucket = scene.bucket("match").await;
    let intent = scene.staged(bucket, "a", 7).await;
    refused(scene.commit(&intent, WriteCondition::IfMatch(None)).await, Verdict::PreconditionFailed);
    let content = scene.put(bucket, "a", 5).await;
    let wrong = WriteCondition::IfMatch(Some(ETag::from_text("wrong")));
    refused(scene.commit(&intent, wrong).await, Verdict::PreconditionFailed);
    let right = WriteCondition::IfMatch(Some(ETag::of_whole(md5_of(content))));
    assert!(scene.commit(&intent, right).await.expect("committed").displaced);
    assert_eq!(scene.standing(content).await, Standing::Condemned);
    let any = scene.staged(bucket, "a", 1).await;
    assert!(scene.commit(&any, WriteCondition::IfMatch(None)).await.expect("committed").displaced);
}

/// Tags belong to a version: those meant for an older one change nothing.
pub async fn tags_are_those_of_a_version(scene: &Scene) {
    let bucket = scene.bucket("tags").await;
    scene.put(bucket, "a", 5).await;
    let older = scene.resolve("tags", "a").await.object.expect("there");
    let tags = everything().tags;
    scene.catalog.set_object_tags(&older, &tags).await.expect("tagged");
    assert_eq!(scene.resolve("tags", "a").await.object.expect("there").attributes.tags, tags);
    scene.put(bucket, "a", 5).await;
    refused(scene.catalog.set_object_tags(&older, &tags).await, Verdict::RunAgain);
    assert_eq!(scene.resolve("tags", "a").await.object.expect("there").attributes.tags, Tags::new());
}

/// A thousand rows go in one unit, among them many that share content; the rest stays.
pub async fn a_thousand_rows_go_at_once(scene: &Scene) {
    let bucket = scene.bucket("many").await;
    let shared = scene.put(bucket, "shared", 5).await;
    let mut targets: Vec<(ObjectKey, Option<ETag>)> = vec![(key("shared"), None), (key("never"), None)];
    let fill = (0..998).map(|number| {
        let (scene, name) = (scene.clone(), format!("k{number}"));
        targets.push((key(&name), None));
        async move {
            if number % 2 == 0 {
                scene.copy((shared, 5), bucket, &name).await.expect("copied");
            } else {
                scene.put(bucket, &name, 1).await;
            }
        }
    });
    at_once(fill.collect()).await;
    scene.copy((shared, 5), bucket, "kept").await.expect("copied");
    let gone = scene.catalog.delete_objects(bucket, &targets, scene.token()).await.expect("deleted");
    assert_eq!(gone.len(), 999);
    assert!(!gone.contains(&key("never")));
    assert_eq!((scene.standing(shared).await, scene.booked().await), (Standing::Live(1), (5, 499, 0)));
    assert!(scene.resolve("many", "kept").await.whole.is_some());
}

/// Each key of a batch has its own condition, and goes once however often it is named.
pub async fn a_batch_judges_each_key(scene: &Scene) {
    let bucket = scene.bucket("batch").await;
    let etag = |content| Some(ETag::of_whole(md5_of(content)));
    let (a, b) = (scene.put(bucket, "a", 1).await, scene.put(bucket, "b", 1).await);
    scene.put(bucket, "c", 1).await;
    let targets = [
        (key("a"), etag(a)),
        (key("a"), None),
        (key("b"), etag(a)),
        (key("c"), None),
        (key("c"), None),
        (key("d"), etag(b)),
    ];
    let mut gone = scene.catalog.delete_objects(bucket, &targets, scene.token()).await.expect("deleted");
    gone.sort();
    assert_eq!(gone, [key("a"), key("c")]);
    assert_eq!(scene.standing(b).await, Standing::Live(1));
    assert_eq!(scene.catalog.delete_objects(bucket, &[], scene.token()).await.expect("nothing asked"), []);
}

/// A count that drifted too low must not kill bytes that a row still refers to.
pub async fn a_count_that_drifted_kills_no_bytes(scene: &Scene) {
    let bucket = scene.bucket("drift").await;
    let drift = "UPDATE contents SET ref_count = 1 WHERE id = $1";
    for (number, way) in ["overwrite", "delete", "batch"].into_iter().enumerate() {
        let content = scene.put(bucket, way, 5).await;
        let kept = format!("kept-{number}");
        scene.copy((content, 5), bucket, &kept).await.expect("copied");
        scene.change(drift, params![content]).await;
        match number {
            0 => drop(scene.put(bucket, way, 1).await),
            1 => assert!(scene.delete(bucket, way).await),
            _ => drop(scene.catalog.delete_objects(bucket, &[(key(way), None)], scene.token()).await.expect("deleted")),
        }
        assert_eq!(scene.standing(content).await, Standing::Live(0), "{way}");
        assert_eq!(scene.resolve("drift", &kept).await.whole.expect("whole").locations.len(), 1, "{way}");
        scene.change(drift, params![content]).await;
    }
}

/// A write, a copy and a delete tell the reaper that they came after the writes still under way.
pub async fn later_changes_flag_writes_under_way(scene: &Scene) {
    const FLAGGED: &str = "SELECT count(*) FROM pending_objects WHERE superseded = 1";
    let bucket = scene.bucket("later").await;
    let content = scene.put(bucket, "source", 1).await;
    for name in ["put", "copy", "delete", "delete-absent", "batch", "batch-absent", "batch-matching", "untouched"] {
        scene.staged(bucket, name, 1).await;
    }
    scene.put(bucket, "put", 1).await;
    scene.copy((content, 1), bucket, "copy").await.expect("copied");
    scene.copy((content, 1), bucket, "batch-matching").await.expect("copied");
    assert_eq!(scene.number(FLAGGED).await, 3);
    scene.change("UPDATE pending_objects SET superseded = 0", vec![]).await;
    assert!(!scene.delete(bucket, "delete-absent").await);
    let matching = Some(ETag::of_whole(md5_of(content)));
    let targets = [(key("batch"), None), (key("batch-absent"), None), (key("batch-matching"), matching)];
    scene.catalog.delete_objects(bucket, &targets, scene.token()).await.expect("deleted");
    assert_eq!(scene.number(FLAGGED).await, 4);
    let untouched = "SELECT superseded FROM pending_objects WHERE key = 'untouched'";
    assert_eq!(scene.number(untouched).await, 0);
}
