//! Tests of what the scrubber records about single copies.

use s3o_model::etag::Sha256;
use s3o_model::ids::ContentId;

use super::fixture::replicas::COPY_BYTES as SIZE;
use super::fixture::{Fixture, backend};
use super::refused;
use crate::{Accused, ReplicaSource, ScrubCopy, Verdict, lost_contents};

/// A content with copies on `disk` and `east`.
async fn pair(fixture: &Fixture) -> ContentId {
    let bucket = fixture.bucket_with_factor(2).await;
    fixture.put_copies(bucket, &["disk", "east"], 2).await
}

/// The copy as the scrubber sees it now.
async fn seen(fixture: &Fixture, content: ContentId, name: &str) -> ScrubCopy {
    let known = fixture.catalog.scrub_state().await.expect("a query").passes;
    let known = known.iter().find(|pass| pass.backend == backend(name));
    fixture.catalog.begin_scrub(&backend(name), known).await.expect("begun");
    let passes = fixture.catalog.scrub_state().await.expect("a query").passes;
    let pass = passes.into_iter().find(|pass| pass.backend == backend(name)).expect("a pass");
    let page = fixture.catalog.scrub_page(&pass, 100).await.expect("a page");
    page.into_iter().find_map(|entry| entry.copy.filter(|copy| copy.content == content)).expect("a copy")
}

async fn accuse(fixture: &Fixture, content: ContentId, name: &str) -> Accused {
    fixture.catalog.accuse_copy(&seen(fixture, content, name).await).await.expect("an answer")
}

async fn states(fixture: &Fixture, content: ContentId) -> Vec<String> {
    let sql = "SELECT state FROM object_locations WHERE content_id = $1 ORDER BY backend_name";
    let rows = fixture.rows(sql, crate::params![content]).await;
    rows.iter().map(|row| row.string("state").expect("a state")).collect()
}

/// The backends that a read may use.
async fn served(fixture: &Fixture, content: ContentId) -> Vec<String> {
    let copies = fixture.catalog.readable_copies(content).await.expect("a query");
    let resolved = fixture.resolve("copies", "a").await.whole.expect("whole").copies;
    assert_eq!(copies, resolved, "both queries name the same copies");
    copies.iter().map(|copy| copy.location.backend.to_string()).collect()
}

/// Another copy replaces it, and it is no source of that copy.
pub async fn copy_with_a_wrong_digest_is_not_served(fixture: &Fixture) {
    let content = pair(fixture).await;
    assert_eq!(accuse(fixture, content, "disk").await, Accused::Suspect);
    assert_eq!(
        (states(fixture, content).await, served(fixture, content).await),
        (vec!["suspect".to_owned(), "present".to_owned()], vec!["east".to_owned()])
    );
    let work = fixture.copy_work(false).await;
    let wrong: Vec<bool> = work[0].copies.iter().map(|copy| copy.has_wrong_digest).collect();
    assert_eq!((work.len(), wrong), (1, vec![true, false]));
    assert!(seen(fixture, content, "disk").await.has_wrong_digest);
}

/// Their bytes stay, no cleanup names them, and they are reported.
pub async fn last_copies_with_wrong_digests_are_lost(fixture: &Fixture) {
    let content = pair(fixture).await;
    assert_eq!(accuse(fixture, content, "disk").await, Accused::Suspect);
    assert_eq!(fixture.catalog.lost_copies().await.expect("a query"), (0, 0));
    assert_eq!(accuse(fixture, content, "east").await, Accused::Lost);
    assert_eq!((states(fixture, content).await, served(fixture, content).await), (vec!["lost".into(); 2], vec![]));
    assert_eq!((fixture.queued().await, fixture.counters("disk").await), (vec![], (SIZE, 0, 0)));
    assert_eq!(fixture.catalog.lost_copies().await.expect("a query"), (1, SIZE));
    fixture.review().await;
    assert!(fixture.copy_work(false).await.is_empty(), "nothing can be done for it");
    let (check, catalog) = (lost_contents(), &fixture.catalog);
    let end = catalog.page_end(check, &check.start(), 9).await.expect("a query").expect("a page");
    assert_eq!(catalog.broken(check, &check.start(), &end).await.expect("a query").len(), 1);
}

/// The bytes that were read are no copy of the content any more, or another process judged them.
pub async fn changed_copy_is_not_accused(fixture: &Fixture) {
    let content = pair(fixture).await;
    let copy = seen(fixture, content, "disk").await;
    let mut moved = copy.clone();
    moved.location.physical_key.push('x');
    let mut other = copy.clone();
    other.location.backend = backend("west");
    for changed in [moved, other, ScrubCopy { has_wrong_digest: true, ..copy.clone() }] {
        assert_eq!(fixture.catalog.accuse_copy(&changed).await.expect("an answer"), Accused::Changed);
    }
    assert_eq!(states(fixture, content).await, ["present", "present"]);
    assert_eq!(fixture.catalog.accuse_copy(&copy).await.expect("an answer"), Accused::Suspect);
    assert_eq!(fixture.catalog.accuse_copy(&copy).await.expect("an answer"), Accused::Changed);
}

/// The reader was at fault, or the store has the right bytes again.
pub async fn proven_copy_makes_lost_content_readable(fixture: &Fixture) {
    let content = pair(fixture).await;
    for name in ["disk", "east"] {
        accuse(fixture, content, name).await;
    }
    fixture.catalog.prove_copy(&seen(fixture, content, "east").await).await.expect("proven");
    assert_eq!(
        (states(fixture, content).await, served(fixture, content).await),
        (vec!["suspect".to_owned(), "present".to_owned()], vec!["east".to_owned()])
    );
    assert_eq!(fixture.copy_work(false).await.len(), 1, "the other copy is replaced");
}

/// A probe that began before compares no bytes.
pub async fn probe_does_not_clear_a_wrong_digest(fixture: &Fixture) {
    let content = pair(fixture).await;
    let copy = fixture.copy_on(content, "disk").await;
    accuse(fixture, content, "disk").await;
    fixture.catalog.confirm_copy(content, &copy).await.expect("an answer");
    assert_eq!(states(fixture, content).await, ["suspect", "present"]);
}

/// Only then are the wrong bytes deleted.
pub async fn copy_that_replaces_a_wrong_one_queues_it_for_scrub(fixture: &Fixture) {
    let content = pair(fixture).await;
    let (wrong, source) = (fixture.copy_on(content, "disk").await, fixture.copy_on(content, "east").await);
    accuse(fixture, content, "disk").await;
    assert!(fixture.queued().await.is_empty());
    let staged = fixture.stage_replica(content, "disk").await.expect("staged");
    fixture.commit_replica(&staged, &source, ReplicaSource::Nothing).await.expect("added");
    assert_eq!((states(fixture, content).await, served(fixture, content).await.len()), (vec!["present".into(); 2], 2));
    let cleanups = fixture.rows("SELECT physical_key, reason FROM cleanup_queue", vec![]).await;
    let shown: Vec<_> = cleanups.iter().map(|row| (row.string("physical_key"), row.string("reason"))).collect();
    assert!(matches!(&shown[..], [(Ok(key), Ok(reason))] if *key == wrong.physical_key && reason == "scrub"));
    assert!(fixture.copy_work(false).await.is_empty());
}

/// Nothing needs the wrong bytes any more.
pub async fn deleted_object_releases_its_lost_copy(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let copy = fixture.copy_on(content, "disk").await;
    assert_eq!(accuse(fixture, content, "disk").await, Accused::Lost);
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!((fixture.queued().await, fixture.counters("disk").await), (vec![copy.physical_key], (0, SIZE, 0)));
    assert_eq!(fixture.catalog.lost_copies().await.expect("a query"), (0, 0));
}

/// A removal would lose the bytes; a write-off reports them.
pub async fn backend_with_a_lost_copy_is_not_empty(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    accuse(fixture, content, "disk").await;
    let (disk, catalog) = (backend("disk"), &fixture.catalog);
    assert_eq!(catalog.backend_holdings(&disk).await.expect("a query").locations, 1);
    refused(catalog.begin_removal(&disk).await, Verdict::NotEmpty);
    catalog.begin_write_off(&disk).await.expect("begun");
    while catalog.write_off_copies(&disk, "").await.expect("written off").is_some() {}
    let totals = catalog.write_off_totals(&disk).await.expect("totals");
    assert_eq!((totals.len(), totals[0].count, totals[0].bytes), (1, 1, SIZE));
    catalog.finish_removal(&disk).await.expect("removed");
}

/// Content of old versions has an MD5 only.
pub async fn digest_is_learnt_once(fixture: &Fixture) {
    let content = pair(fixture).await;
    fixture.change("UPDATE contents SET sha256 = NULL", vec![]).await;
    for byte in [1, 2] {
        fixture.catalog.learn_sha256(content, Sha256([byte; 32])).await.expect("an answer");
    }
    assert_eq!(seen(fixture, content, "disk").await.sha256, Some(Sha256([1; 32])));
}
