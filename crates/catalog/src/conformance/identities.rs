//! Tests of the marks that identify backends.

use std::time::Duration;

use super::refused;
use s3o_model::clock::Clock as _;

use s3o_model::names::BackendName;

use super::fixture::{Fixture, backend};
use crate::{Acceptance, IdentityRecord, KnownBackend, MARK_LEASE, PlannedMark, Verdict};

/// The backends with a live record of a mismatch that was not dismissed.
async fn disputed(fixture: &Fixture) -> Vec<BackendName> {
    let states = fixture.catalog.backend_states().await.expect("a query").into_iter();
    states.filter(|state| state.disputed).map(|state| state.name).collect()
}

/// A second ID that is offered is ignored.
pub async fn cluster_keeps_its_first_id(fixture: &Fixture) {
    assert_eq!(fixture.catalog.cluster_id("one").await.expect("named"), "one");
    assert_eq!(fixture.catalog.cluster_id("two").await.expect("named"), "one");
}

/// `known_backend` creates its row.
pub async fn new_backend_has_no_mark(fixture: &Fixture) {
    let known = fixture.catalog.known_backend(&backend("disk")).await.expect("entered");
    assert_eq!(known, KnownBackend::default());
}

/// Another plan returns the mark that was planned first. Only that mark can be confirmed, once.
pub async fn planned_mark_is_kept_until_confirmed(fixture: &Fixture) {
    let disk = fixture.attach("disk", None).await;
    for offered in ["m1", "m2"] {
        let planned = fixture.catalog.plan_mark(&disk, offered).await.expect("planned");
        assert_eq!(planned, PlannedMark { mark: "m1".to_owned(), sequence: 1 });
    }
    refused(fixture.catalog.confirm_mark(&disk, "m2").await, Verdict::RunAgain);
    let known = fixture.catalog.known_backend(&disk).await.expect("known");
    assert_eq!((known.mark, known.next_mark.as_deref()), (None, Some("m1")));
    fixture.catalog.confirm_mark(&disk, "m1").await.expect("confirmed");
    refused(fixture.catalog.confirm_mark(&disk, "m1").await, Verdict::RunAgain);
    let known = fixture.catalog.known_backend(&disk).await.expect("known");
    assert_eq!((known.mark.as_deref(), known.next_mark, known.past_marks), (Some("m1"), None, vec![]));
}

/// They are ordered by age, the newest last, for each backend separately.
pub async fn last_sixteen_marks_are_kept(fixture: &Fixture) {
    let disk = fixture.attach("disk", None).await;
    fixture.attach("other", None).await;
    for number in 0..20 {
        let mark = format!("m{number}");
        fixture.catalog.plan_mark(&disk, &mark).await.expect("planned");
        fixture.catalog.confirm_mark(&disk, &mark).await.expect("confirmed");
    }
    let known = fixture.catalog.known_backend(&disk).await.expect("known");
    let expected: Vec<String> = (3..19).map(|number| format!("m{number}")).collect();
    assert_eq!((known.mark.as_deref(), known.past_marks), (Some("m19"), expected));
    assert_eq!(known.mark_sequence, 20);
    let other = fixture.catalog.known_backend(&backend("other")).await.expect("known");
    assert_eq!(other, KnownBackend::default());
}

/// `known_backend` returns it.
pub async fn frozen_reason_is_stored_and_cleared(fixture: &Fixture) {
    let disk = fixture.attach("disk", None).await;
    for reason in [Some("another cluster's mark"), None] {
        fixture.set_frozen(&disk, reason).await;
        let known = fixture.catalog.known_backend(&disk).await.expect("known");
        assert_eq!(known.frozen_reason.as_deref(), reason);
    }
}

/// A backend without a mark has none.
pub async fn mark_age_counts_from_its_confirmation(fixture: &Fixture) {
    let disk = fixture.attach("disk", None).await;
    assert_eq!(fixture.catalog.mark_age(&disk).await.expect("known"), None);
    fixture.catalog.plan_mark(&disk, "m1").await.expect("planned");
    fixture.catalog.confirm_mark(&disk, "m1").await.expect("confirmed");
    fixture.clock.advance(Duration::from_mins(1));
    assert!(fixture.catalog.mark_age(&disk).await.expect("known").is_some());
}

/// Present locations only, the newest first.
pub async fn newest_keys_are_those_since_the_last_accept(fixture: &Fixture) {
    let bucket = fixture.bucket("photos").await;
    let disk = backend("disk");
    for key in ["one", "two", "three"] {
        fixture.put(bucket, key, 5).await;
        fixture.clock.advance(Duration::from_millis(2));
    }
    let newest = fixture.catalog.newest_keys(&disk, fixture.clock.now(), 2).await.expect("keys");
    assert!(newest.len() == 2 && newest[0].contains("three") && newest[1].contains("two"), "{newest:?}");
    assert!(fixture.catalog.is_located(&disk, &newest[0]).await.expect("a query"));
    assert!(!fixture.catalog.is_located(&disk, "elsewhere").await.expect("a query"));
    assert!(fixture.delete(bucket, "three").await);
    assert_eq!(fixture.catalog.newest_keys(&disk, fixture.clock.now(), 1).await.expect("keys"), newest[1..]);
    assert_eq!(fixture.catalog.queued_deletes(&disk).await.expect("a query"), 1);

    let expected = fixture.catalog.known_backend(&disk).await.expect("known");
    let next = PlannedMark { mark: "m1".to_owned(), sequence: 7 };
    let acceptance = Acceptance { expected: &expected, hash: "h", next: &next, upto: fixture.clock.now() };
    fixture.catalog.accept_mark(&disk, acceptance).await.expect("accepted");
    assert_eq!(fixture.catalog.newest_keys(&disk, fixture.clock.now(), 2).await.expect("keys"), Vec::<String>::new());
    fixture.clock.advance(Duration::from_millis(2));
    fixture.put(bucket, "four", 5).await;
    assert_eq!(fixture.catalog.newest_keys(&disk, fixture.clock.now(), 2).await.expect("keys").len(), 1);
}

/// Only the marks that the operator was shown are accepted. A planned mark that was not confirmed becomes a past mark.
pub async fn accept_of_stale_marks_is_refused(fixture: &Fixture) {
    let disk = fixture.attach("disk", None).await;
    let shown = fixture.catalog.known_backend(&disk).await.expect("known");
    fixture.catalog.plan_mark(&disk, "m1").await.expect("planned");
    let next = PlannedMark { mark: "m2".to_owned(), sequence: 9 };
    let stale = Acceptance { expected: &shown, hash: "h", next: &next, upto: fixture.clock.now() };
    refused(fixture.catalog.accept_mark(&disk, stale).await, Verdict::RunAgain);
    let shown = fixture.catalog.known_backend(&disk).await.expect("known");
    let acceptance = Acceptance { expected: &shown, hash: "h", next: &next, upto: fixture.clock.now() };
    fixture.catalog.accept_mark(&disk, acceptance).await.expect("accepted");
    let known = fixture.catalog.known_backend(&disk).await.expect("known");
    assert_eq!((known.next_mark.as_deref(), known.next_sequence), (Some("m2"), 9));
    assert_eq!((known.past_marks, known.accepted_at.is_some()), (vec!["m1".to_owned()], true));
    fixture.catalog.confirm_mark(&disk, "m2").await.expect("confirmed");
    assert_eq!(fixture.catalog.known_backend(&disk).await.expect("known").mark_sequence, 9);
}

fn found(host: &str, hash: &str, reason: Option<&str>) -> IdentityRecord {
    IdentityRecord {
        host: host.to_owned(),
        found: "null".to_owned(),
        hash: hash.to_owned(),
        reason: reason.map(str::to_owned),
        dismissed: false,
        age: Duration::ZERO,
    }
}

/// A dismissal applies to the hash that the host found and ends with another hash.
pub async fn identity_records_are_kept_by_host(fixture: &Fixture) {
    const LEASE: Duration = Duration::from_mins(2);
    let disk = fixture.attach("disk", None).await;
    for hash in ["h1", "h2"] {
        fixture.catalog.record(&disk, &found("a", hash, Some("gone")), LEASE).await.expect("recorded");
    }
    fixture.catalog.record(&disk, &found("b", "h3", None), LEASE).await.expect("recorded");
    let live = fixture.catalog.live_records(&disk).await.expect("records");
    assert_eq!(live, [found("a", "h2", Some("gone")), found("b", "h3", None)]);
    assert_eq!(disputed(fixture).await, std::slice::from_ref(&disk));

    assert!(fixture.catalog.dismiss_record(&disk, "a").await.expect("dismissed"));
    assert!(!fixture.catalog.dismiss_record(&disk, "b").await.expect("a query"), "there is nothing to dismiss");
    assert_eq!(disputed(fixture).await, []);
    fixture.catalog.record(&disk, &found("a", "h2", Some("gone")), LEASE).await.expect("renewed");
    assert!(fixture.catalog.live_records(&disk).await.expect("records")[0].dismissed);
    fixture.catalog.record(&disk, &found("a", "h4", Some("gone")), LEASE).await.expect("recorded");
    assert!(!fixture.catalog.live_records(&disk).await.expect("records")[0].dismissed);

    // Another instance with the same host name that finds the right mark does not replace a live record.
    fixture.catalog.record(&disk, &found("a", "h5", None), LEASE).await.expect("a query");
    assert_eq!(fixture.catalog.live_records(&disk).await.expect("records")[0].hash, "h4");
    fixture.clock.advance(LEASE / 2);
    fixture.catalog.record(&disk, &found("a", "h4", Some("gone")), LEASE).await.expect("renewed");
    assert_eq!(fixture.catalog.live_records(&disk).await.expect("records")[0].age, LEASE / 2);
    assert!(fixture.catalog.close_record(&disk, "a").await.expect("closed"));
    assert!(!fixture.catalog.close_record(&disk, "a").await.expect("a query"));
    assert_eq!(fixture.catalog.live_records(&disk).await.expect("records").len(), 1);
}

/// The accept succeeds once every live record has the accepted hash.
pub async fn accept_is_refused_while_a_record_has_another_hash(fixture: &Fixture) {
    let disk = fixture.attach("disk", None).await;
    let shown = fixture.catalog.known_backend(&disk).await.expect("known");
    let next = PlannedMark { mark: "m1".to_owned(), sequence: 1 };
    let acceptance = Acceptance { expected: &shown, hash: "h1", next: &next, upto: fixture.clock.now() };
    fixture.catalog.record(&disk, &found("a", "h2", None), Duration::from_mins(2)).await.expect("recorded");
    refused(fixture.catalog.accept_mark(&disk, acceptance).await, Verdict::RunAgain);
    fixture.catalog.record(&disk, &found("a", "h1", Some("gone")), Duration::from_mins(2)).await.expect("recorded");
    fixture.catalog.accept_mark(&disk, acceptance).await.expect("accepted");
}

/// A mark that was planned before a removal may still be written: the removal waits until it is confirmed, or until its
/// writer gives up.
pub async fn removal_waits_for_a_planned_mark(fixture: &Fixture) {
    for (name, is_confirmed) in [("disk", true), ("cloud", false)] {
        let name = fixture.attach(name, None).await;
        fixture.catalog.plan_mark(&name, "m1").await.expect("planned");
        fixture.catalog.begin_removal(&name).await.expect("begun");
        refused(fixture.catalog.plan_mark(&name, "m2").await, Verdict::Closed);
        assert!(fixture.catalog.is_mark_planned(&name).await.expect("an answer"));
        if is_confirmed {
            fixture.catalog.confirm_mark(&name, "m1").await.expect("confirmed");
        } else {
            fixture.clock.advance(MARK_LEASE);
        }
        assert!(!fixture.catalog.is_mark_planned(&name).await.expect("an answer"));
    }
}
