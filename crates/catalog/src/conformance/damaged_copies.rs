//! Tests of copies whose bytes are missing or not what was written: content without a good copy is a finding, and a
//! copy that an accepted store lacks is given up.

use std::time::Duration;

use s3o_model::ids::ContentId;

use super::fixture::Fixture;
use super::fixture::sharing::BODY_BYTES as SIZE;
use super::refused;
use crate::{FindingSelection, Verdict};

/// The finding names an object. It is not shown once the content has a good copy, and a worker removes it.
pub async fn content_without_a_good_copy_is_a_finding(fixture: &Fixture) {
    let bucket = fixture.bucket("bad").await;
    let content = fixture.share(bucket, "a", 1).await;
    let copy = fixture.copy_on(content, "disk").await;
    for _ in 0..2 {
        assert!(fixture.catalog.suspect(content, &copy).await.expect("marked"));
        let found = fixture.catalog.findings(&FindingSelection::default(), 0, 9).await.expect("a page");
        let [found] = &found[..] else { panic!("one finding: {found:?}") };
        let named = (found.kind.as_str(), found.physical_key.clone(), found.detail.as_str());
        assert_eq!((named, found.size_bytes), (("no_good_copy", content.to_string(), "bad/a"), SIZE));
        fixture.catalog.confirm_copy(content, &copy, fixture.now()).await.expect("confirmed");
        assert_eq!(fixture.number("SELECT count(*) FROM findings").await, 0);
    }
    assert!(fixture.catalog.suspect(content, &copy).await.expect("marked"));
    fixture.share(bucket, "b", 1).await;
    let shown = fixture.catalog.findings(&FindingSelection::default(), 0, 9).await.expect("a page");
    assert_eq!((shown, fixture.number("SELECT count(*) FROM findings").await), (Vec::new(), 1));
    fixture.catalog.settle_copy_work(content).await.expect("settled");
    assert_eq!(fixture.number("SELECT count(*) FROM findings").await, 0);
}

/// An operator accepts the store of a backend, and a probe proves that it lacks the copy.
pub async fn give_up(fixture: &Fixture, content: ContentId, name: &str) {
    let (catalog, copy) = (&fixture.catalog, fixture.copy_on(content, name).await);
    assert!(catalog.suspect(content, &copy).await.expect("marked"));
    let since = catalog.written_digests(content).await.expect("a query").expect("live").read_at;
    refused(catalog.lose_absent_copy(content, &copy, since).await, Verdict::NotNeeded);
    fixture.clock.advance(Duration::from_mins(1));
    let accepted = crate::params![fixture.now().millis(), name];
    fixture.change("UPDATE backends SET trust_from = $1 WHERE name = $2", accepted).await;
    refused(catalog.lose_absent_copy(content, &copy, since).await, Verdict::NotNeeded);
    catalog.lose_absent_copy(content, &copy, fixture.now()).await.expect("given up");
}

/// A copy that the accepted store lacks is removed if another one counts. The last copy is lost and reported.
pub async fn copy_absent_after_an_accept_is_given_up(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    for (name, left) in [("east", vec!["disk"]), ("disk", vec!["disk"])] {
        let copy = fixture.copy_on(content, name).await;
        give_up(fixture, content, name).await;
        assert_eq!((fixture.places_of(content).await, fixture.counters(name).await), (strings(&left), (0, 0, 0)));
        refused(fixture.catalog.lose_absent_copy(content, &copy, fixture.now()).await, Verdict::NotNeeded);
    }
    assert_eq!(fixture.number("SELECT count(*) FROM object_locations WHERE state = 'lost'").await, 1);
    let found = fixture.catalog.findings(&FindingSelection::default(), 0, 9).await.expect("a page");
    assert_eq!(found.iter().map(|finding| finding.kind.as_str()).collect::<Vec<_>>(), ["lost_copies"]);
    assert!(fixture.queued().await.is_empty() && fixture.copy_work(false).await.is_empty());
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
