//! Tests of the rows of objects: writes, deletes and tags.

use s3o_model::checksum::{Algorithm, Checksum, Coverage};
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::names::ObjectKey;
use s3o_model::object::{Attributes, Headers, Tags};

use super::fixture::{ContentStanding, Fixture, announced, at_once, backend, bucket_name, key, md5_of};
use super::refused;
use crate::{StoredBytes, Verdict, params};

fn everything() -> Attributes {
    let headers = Headers { content_type: Some("text/ä".into()), expires: Some("0".into()), ..Headers::default() };
    let pair = || Tags::from([("k".to_owned(), "v \"x\" \u{1}".to_owned())]);
    Attributes { headers, metadata: pair(), tags: pair() }
}

/// The locations of its bytes are returned as well.
pub async fn put_reads_back_all_attributes(fixture: &Fixture) {
    let bucket = fixture.bucket("whole").await;
    let intent = fixture.staged(bucket, "a/ä", 9).await;
    let mut put = fixture.put_of(&intent, WriteCondition::None);
    put.row.attributes = everything();
    put.row.checksum =
        Some(Checksum { algorithm: Algorithm::Crc32c, value: "AAAA".into(), coverage: Coverage::FullObject });
    let committed = fixture.commit_put(put.clone()).await.expect("committed");
    assert!(!committed.displaced);
    assert_eq!(committed.last_modified.millis(), fixture.now().millis() / 1000 * 1000, "S3 knows whole seconds");
    let resolved = fixture.resolve("whole", "a/ä").await;
    let object = resolved.object.expect("there");
    assert_eq!((object.bucket, object.version, object.content), (bucket, put.row.version, put.content));
    assert_eq!((object.size_bytes, object.etag, object.checksum), (9, put.row.etag, put.row.checksum));
    assert_eq!((object.attributes, object.last_modified), (everything(), committed.last_modified));
    assert_eq!((object.key, object.expires_at), (key("a/ä"), None));
    let whole = resolved.whole.expect("in one piece");
    assert_eq!(whole.md5, md5_of(put.content));
    assert_eq!(
        (whole.copies[0].location.backend.as_str(), &whole.copies[0].location.physical_key),
        ("disk", &intent.physical_key)
    );
    assert_eq!(fixture.usage().await, (9, 0, 0));
}

/// `resolve` returns None only for a missing bucket.
pub async fn missing_bucket_and_missing_key_are_distinguished(fixture: &Fixture) {
    fixture.bucket("there").await;
    assert_eq!(fixture.catalog.resolve(&bucket_name("never"), &key("a")).await.expect("a query"), None);
    let resolved = fixture.resolve("there", "a").await;
    assert_eq!((resolved.object, resolved.whole), (None, None));
}

/// Present copies come before suspect ones, and lost ones are left out.
pub async fn locations_are_returned_best_first(fixture: &Fixture) {
    let bucket = fixture.bucket("copies").await;
    let first = fixture.intent(bucket, "a", 4);
    let mut intents = vec![first.clone()];
    for name in ["cloud", "tape"] {
        fixture.attach(name, None).await;
        let other = fixture.intent(bucket, "a", 4);
        intents.push(s3o_model::intent::Intent { write: first.write, backend: backend(name), ..other });
    }
    for intent in &intents {
        fixture.try_stage(intent).await.expect("staged");
    }
    let mut put = fixture.put_of(&first, WriteCondition::None);
    refused(fixture.commit_put(put.clone()).await, Verdict::Fenced);
    put.stored = announced(first.write, 3);
    fixture.commit_put(put).await.expect("committed");
    fixture.change("UPDATE object_locations SET state = 'suspect' WHERE backend_name = 'cloud'", vec![]).await;
    fixture.change("UPDATE object_locations SET state = 'lost' WHERE backend_name = 'disk'", vec![]).await;
    let places = fixture.resolve("copies", "a").await.whole.expect("whole").copies;
    let names: Vec<&str> = places.iter().map(|place| place.location.backend.as_str()).collect();
    assert_eq!(names, ["tape", "cloud"]);
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!(fixture.queued().await.len(), 3, "a lost copy may still be there");
}

/// Its bytes are queued and become orphan bytes in the same unit.
pub async fn overwrite_condemns_the_displaced_content(fixture: &Fixture) {
    let bucket = fixture.bucket("over").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    let mut put = fixture.put_of(&intent, WriteCondition::None);
    let backend_versions = vec![(intent.id, "v1".to_owned())];
    put.stored = StoredBytes::Announced { write: intent.write, copies: 1, backend_versions, failed: Vec::new() };
    let old = put.content;
    fixture.commit_put(put).await.expect("committed");
    let committed =
        fixture.commit(&fixture.staged(bucket, "a", 7).await, WriteCondition::None).await.expect("committed");
    assert!(committed.displaced);
    assert_eq!(fixture.standing(old).await, ContentStanding::Condemned);
    assert_eq!(fixture.usage().await, (7, 5, 0));
    let (_, claimed) = fixture.claim(9).await;
    assert_eq!((claimed.len(), &claimed[0].physical_key), (1, &intent.physical_key));
    assert_eq!(claimed[0].target, s3o_model::target::Target::Version("v1".to_owned()));
    assert_eq!(fixture.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'overwrite'").await, 1);
}

/// Deleting a missing key is not an error.
pub async fn delete_condemns_content_and_queues_its_bytes(fixture: &Fixture) {
    let bucket = fixture.bucket("delete").await;
    let content = fixture.put(bucket, "a", 5).await;
    assert!(!fixture.delete(bucket, "b").await);
    assert!(fixture.delete(bucket, "a").await);
    assert!(!fixture.delete(bucket, "a").await);
    assert_eq!(fixture.resolve("delete", "a").await.object, None);
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Condemned, (0, 5, 0)));
    assert_eq!(fixture.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'delete'").await, 1);
}

/// A missing key fails the condition, too.
pub async fn conditional_delete_requires_the_etag(fixture: &Fixture) {
    let bucket = fixture.bucket("delete").await;
    let content = fixture.put(bucket, "a", 5).await;
    let other = ETag::from_text("other");
    refused(fixture.delete_if(bucket, "a", Some(&other)).await, Verdict::PreconditionFailed);
    refused(fixture.delete_if(bucket, "b", Some(&other)).await, Verdict::PreconditionFailed);
    assert_eq!(fixture.standing(content).await, ContentStanding::Live(1));
    let etag = ETag::of_whole(md5_of(content));
    assert!(fixture.delete_if(bucket, "a", Some(&etag)).await.expect("deleted"));
}

/// This holds for puts and copies. A refusal changes nothing.
pub async fn if_absent_refuses_existing_object(fixture: &Fixture) {
    let bucket = fixture.bucket("absent").await;
    let content = fixture.put(bucket, "a", 5).await;
    let intent = fixture.staged(bucket, "a", 7).await;
    refused(fixture.commit(&intent, WriteCondition::IfAbsent).await, Verdict::PreconditionFailed);
    let row = fixture.row(bucket, "a", content, 5);
    let copied = fixture.catalog.commit_copy(row, content, WriteCondition::IfAbsent).await;
    refused(copied, Verdict::PreconditionFailed);
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Live(1), (5, 0, 7)));
    assert!(fixture.delete(bucket, "a").await);
    assert!(!fixture.commit(&intent, WriteCondition::IfAbsent).await.expect("committed").displaced);
}

/// Without an ETag it requires any object.
pub async fn if_match_requires_the_etag(fixture: &Fixture) {
    let bucket = fixture.bucket("match").await;
    let intent = fixture.staged(bucket, "a", 7).await;
    refused(fixture.commit(&intent, WriteCondition::IfMatch(None)).await, Verdict::PreconditionFailed);
    let content = fixture.put(bucket, "a", 5).await;
    let wrong = WriteCondition::IfMatch(Some(ETag::from_text("wrong")));
    refused(fixture.commit(&intent, wrong).await, Verdict::PreconditionFailed);
    let right = WriteCondition::IfMatch(Some(ETag::of_whole(md5_of(content))));
    assert!(fixture.commit(&intent, right).await.expect("committed").displaced);
    assert_eq!(fixture.standing(content).await, ContentStanding::Condemned);
    let any = fixture.staged(bucket, "a", 1).await;
    assert!(fixture.commit(&any, WriteCondition::IfMatch(None)).await.expect("committed").displaced);
}

/// The overwrite also removed the tags.
pub async fn tags_for_an_older_version_are_refused(fixture: &Fixture) {
    let bucket = fixture.bucket("tags").await;
    fixture.put(bucket, "a", 5).await;
    let older = fixture.resolve("tags", "a").await.object.expect("there");
    let tags = everything().tags;
    fixture.catalog.set_object_tags(&older, &tags).await.expect("tagged");
    assert_eq!(fixture.resolve("tags", "a").await.object.expect("there").attributes.tags, tags);
    fixture.put(bucket, "a", 5).await;
    refused(fixture.catalog.set_object_tags(&older, &tags).await, Verdict::RunAgain);
    assert_eq!(fixture.resolve("tags", "a").await.object.expect("there").attributes.tags, Tags::new());
}

/// Half of them share a content that another object keeps live.
pub async fn thousand_rows_are_deleted_in_one_unit(fixture: &Fixture) {
    let bucket = fixture.bucket("many").await;
    let shared = fixture.put(bucket, "shared", 5).await;
    let mut targets: Vec<(ObjectKey, Option<ETag>)> = vec![(key("shared"), None), (key("never"), None)];
    let fill = (0..998).map(|number| {
        let (fixture, name) = (fixture.clone(), format!("k{number}"));
        targets.push((key(&name), None));
        async move {
            if number % 2 == 0 {
                fixture.copy((shared, 5), bucket, &name).await.expect("copied");
            } else {
                fixture.put(bucket, &name, 1).await;
            }
        }
    });
    at_once(fill.collect()).await;
    fixture.copy((shared, 5), bucket, "kept").await.expect("copied");
    let deleted = fixture.catalog.delete_objects(bucket, &targets, fixture.token()).await.expect("deleted");
    assert_eq!(deleted.len(), 999);
    assert!(!deleted.contains(&key("never")));
    assert_eq!((fixture.standing(shared).await, fixture.usage().await), (ContentStanding::Live(1), (5, 499, 0)));
    assert!(fixture.resolve("many", "kept").await.whole.is_some());
}

/// A key that is named twice is deleted once.
pub async fn batch_checks_the_condition_of_each_key(fixture: &Fixture) {
    let bucket = fixture.bucket("batch").await;
    let etag = |content| Some(ETag::of_whole(md5_of(content)));
    let (a, b) = (fixture.put(bucket, "a", 1).await, fixture.put(bucket, "b", 1).await);
    fixture.put(bucket, "c", 1).await;
    let targets = [
        (key("a"), etag(a)),
        (key("a"), None),
        (key("b"), etag(a)),
        (key("c"), None),
        (key("c"), None),
        (key("d"), etag(b)),
    ];
    let mut deleted = fixture.catalog.delete_objects(bucket, &targets, fixture.token()).await.expect("deleted");
    deleted.sort();
    assert_eq!(deleted, [key("a"), key("c")]);
    assert_eq!(fixture.standing(b).await, ContentStanding::Live(1));
    assert_eq!(fixture.catalog.delete_objects(bucket, &[], fixture.token()).await.expect("nothing asked"), []);
}

/// A count that drifted too low does not condemn content that an object refers to.
pub async fn low_count_deletes_no_referenced_bytes(fixture: &Fixture) {
    let bucket = fixture.bucket("drift").await;
    let drift = "UPDATE contents SET ref_count = 1 WHERE id = $1";
    for (number, way) in ["overwrite", "delete", "batch"].into_iter().enumerate() {
        let content = fixture.put(bucket, way, 5).await;
        let kept = format!("kept-{number}");
        fixture.copy((content, 5), bucket, &kept).await.expect("copied");
        fixture.change(drift, params![content]).await;
        match number {
            0 => drop(fixture.put(bucket, way, 1).await),
            1 => assert!(fixture.delete(bucket, way).await),
            _ => drop(
                fixture.catalog.delete_objects(bucket, &[(key(way), None)], fixture.token()).await.expect("deleted"),
            ),
        }
        assert_eq!(fixture.standing(content).await, ContentStanding::Live(0), "{way}");
        assert_eq!(fixture.resolve("drift", &kept).await.whole.expect("whole").copies.len(), 1, "{way}");
        fixture.change(drift, params![content]).await;
    }
}

/// Puts, copies and deletes set `superseded` on intents of the same key, also if there was nothing to delete.
pub async fn later_changes_flag_open_intents(fixture: &Fixture) {
    const FLAGGED: &str = "SELECT count(*) FROM pending_objects WHERE superseded = 1";
    let bucket = fixture.bucket("later").await;
    let content = fixture.put(bucket, "source", 1).await;
    for name in ["put", "copy", "delete", "delete-absent", "batch", "batch-absent", "batch-matching", "untouched"] {
        fixture.staged(bucket, name, 1).await;
    }
    fixture.put(bucket, "put", 1).await;
    fixture.copy((content, 1), bucket, "copy").await.expect("copied");
    fixture.copy((content, 1), bucket, "batch-matching").await.expect("copied");
    assert_eq!(fixture.number(FLAGGED).await, 3);
    fixture.change("UPDATE pending_objects SET superseded = 0", vec![]).await;
    assert!(!fixture.delete(bucket, "delete-absent").await);
    let matching = Some(ETag::of_whole(md5_of(content)));
    let targets = [(key("batch"), None), (key("batch-absent"), None), (key("batch-matching"), matching)];
    fixture.catalog.delete_objects(bucket, &targets, fixture.token()).await.expect("deleted");
    assert_eq!(fixture.number(FLAGGED).await, 4);
    let untouched = "SELECT superseded FROM pending_objects WHERE key = 'untouched'";
    assert_eq!(fixture.number(untouched).await, 0);
}
