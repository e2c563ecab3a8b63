//! Facts about the marks of backends.

use std::time::Duration;

use super::refused;
use s3o_model::clock::Clock as _;

use super::scene::{Scene, backend};
use crate::{Acceptance, Identities, IdentityRecord, IdentityRecords, KnownBackend, PlannedMark, Verdict};

/// The first name that is offered stays the cluster's.
pub async fn a_cluster_keeps_its_first_name(scene: &Scene) {
    assert_eq!(scene.catalog.cluster_id("one").await.expect("named"), "one");
    assert_eq!(scene.catalog.cluster_id("two").await.expect("named"), "one");
}

/// A backend that was never seen is entered, without a mark.
pub async fn a_new_backend_has_no_mark(scene: &Scene) {
    let known = scene.catalog.known_backend(&backend("disk")).await.expect("entered");
    assert_eq!(known, KnownBackend::default());
}

/// A planned mark stands until it is confirmed: another plan is told of it.
pub async fn an_unconfirmed_mark_is_kept(scene: &Scene) {
    let disk = scene.attach("disk", None).await;
    for offered in ["m1", "m2"] {
        let planned = scene.catalog.plan_mark(&disk, offered).await.expect("planned");
        assert_eq!(planned, PlannedMark { mark: "m1".to_owned(), sequence: 1 });
    }
    refused(scene.catalog.confirm_mark(&disk, "m2").await, Verdict::RunAgain);
    let known = scene.catalog.known_backend(&disk).await.expect("known");
    assert_eq!((known.mark, known.next_mark.as_deref()), (None, Some("m1")));
    scene.catalog.confirm_mark(&disk, "m1").await.expect("confirmed");
    refused(scene.catalog.confirm_mark(&disk, "m1").await, Verdict::RunAgain);
    let known = scene.catalog.known_backend(&disk).await.expect("known");
    assert_eq!((known.mark.as_deref(), known.next_mark, known.past_marks), (Some("m1"), None, vec![]));
}

/// The last sixteen marks are kept, newest last, each backend's its own.
pub async fn past_marks_are_kept(scene: &Scene) {
    let disk = scene.attach("disk", None).await;
    scene.attach("other", None).await;
    for number in 0..20 {
        let mark = format!("m{number}");
        scene.catalog.plan_mark(&disk, &mark).await.expect("planned");
        scene.catalog.confirm_mark(&disk, &mark).await.expect("confirmed");
    }
    let known = scene.catalog.known_backend(&disk).await.expect("known");
    let expected: Vec<String> = (3..19).map(|number| format!("m{number}")).collect();
    assert_eq!((known.mark.as_deref(), known.past_marks), (Some("m19"), expected));
    assert_eq!(known.mark_sequence, 20);
    let other = scene.catalog.known_backend(&backend("other")).await.expect("known");
    assert_eq!(other, KnownBackend::default());
}

/// A backend is frozen with its reason, and thawed.
pub async fn a_backend_is_frozen_and_thawed(scene: &Scene) {
    let disk = scene.attach("disk", None).await;
    for reason in [Some("another cluster's mark"), None] {
        scene.catalog.set_frozen(&disk, reason).await.expect("set");
        let known = scene.catalog.known_backend(&disk).await.expect("known");
        assert_eq!(known.frozen_reason.as_deref(), reason);
    }
}

/// The age of a mark counts from its confirmation.
pub async fn a_mark_has_an_age(scene: &Scene) {
    let disk = scene.attach("disk", None).await;
    assert_eq!(scene.catalog.mark_age(&disk).await.expect("known"), None);
    scene.catalog.plan_mark(&disk, "m1").await.expect("planned");
    scene.catalog.confirm_mark(&disk, "m1").await.expect("confirmed");
    scene.clock.advance(Duration::from_mins(1));
    assert!(scene.catalog.mark_age(&disk).await.expect("known").is_some());
}

/// The newest present locations come first, and only those that are younger than the last accept.
pub async fn the_newest_locations_are_those_since_the_last_accept(scene: &Scene) {
    let bucket = scene.bucket("photos").await;
    let disk = backend("disk");
    for key in ["one", "two", "three"] {
        scene.put(bucket, key, 5).await;
        scene.clock.advance(Duration::from_millis(2));
    }
    let newest = scene.catalog.newest_keys(&disk, scene.clock.now(), 2).await.expect("keys");
    assert!(newest.len() == 2 && newest[0].contains("three") && newest[1].contains("two"), "{newest:?}");
    assert!(scene.catalog.is_located(&disk, &newest[0]).await.expect("asked"));
    assert!(!scene.catalog.is_located(&disk, "elsewhere").await.expect("asked"));
    assert!(scene.delete(bucket, "three").await);
    assert_eq!(scene.catalog.newest_keys(&disk, scene.clock.now(), 1).await.expect("keys"), newest[1..]);
    assert_eq!(scene.catalog.queued_deletes(&disk).await.expect("asked"), 1);

    let expected = scene.catalog.known_backend(&disk).await.expect("known");
    let next = PlannedMark { mark: "m1".to_owned(), sequence: 7 };
    let acceptance = Acceptance { expected: &expected, hash: "h", next: &next, upto: scene.clock.now() };
    scene.catalog.accept_mark(&disk, acceptance).await.expect("accepted");
    assert_eq!(scene.catalog.newest_keys(&disk, scene.clock.now(), 2).await.expect("keys"), Vec::<String>::new());
    scene.clock.advance(Duration::from_millis(2));
    scene.put(bucket, "four", 5).await;
    assert_eq!(scene.catalog.newest_keys(&disk, scene.clock.now(), 2).await.expect("keys").len(), 1);
}

/// Only the marks that were shown are accepted, and an open next mark becomes a past one.
pub async fn what_changed_meanwhile_is_not_accepted(scene: &Scene) {
    let disk = scene.attach("disk", None).await;
    let shown = scene.catalog.known_backend(&disk).await.expect("known");
    scene.catalog.plan_mark(&disk, "m1").await.expect("planned");
    let next = PlannedMark { mark: "m2".to_owned(), sequence: 9 };
    let stale = Acceptance { expected: &shown, hash: "h", next: &next, upto: scene.clock.now() };
    refused(scene.catalog.accept_mark(&disk, stale).await, Verdict::RunAgain);
    let shown = scene.catalog.known_backend(&disk).await.expect("known");
    let acceptance = Acceptance { expected: &shown, hash: "h", next: &next, upto: scene.clock.now() };
    scene.catalog.accept_mark(&disk, acceptance).await.expect("accepted");
    let known = scene.catalog.known_backend(&disk).await.expect("known");
    assert_eq!((known.next_mark.as_deref(), known.next_sequence), (Some("m2"), 9));
    assert_eq!((known.past_marks, known.accepted_at.is_some()), (vec!["m1".to_owned()], true));
    scene.catalog.confirm_mark(&disk, "m2").await.expect("confirmed");
    assert_eq!(scene.catalog.known_backend(&disk).await.expect("known").mark_sequence, 9);
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

/// A record is one per host, is dismissed by what it found, and is closed.
pub async fn records_are_kept_by_host(scene: &Scene) {
    const LEASE: Duration = Duration::from_mins(2);
    let disk = scene.attach("disk", None).await;
    for hash in ["h1", "h2"] {
        scene.catalog.record(&disk, &found("a", hash, Some("gone")), LEASE).await.expect("recorded");
    }
    scene.catalog.record(&disk, &found("b", "h3", None), LEASE).await.expect("recorded");
    let live = scene.catalog.live_records(&disk).await.expect("records");
    assert_eq!(live, [found("a", "h2", Some("gone")), found("b", "h3", None)]);
    assert_eq!(scene.catalog.disputed_backends().await.expect("asked"), std::slice::from_ref(&disk));

    assert!(scene.catalog.dismiss_record(&disk, "a").await.expect("dismissed"));
    assert!(!scene.catalog.dismiss_record(&disk, "b").await.expect("asked"), "there is nothing to dismiss");
    assert_eq!(scene.catalog.disputed_backends().await.expect("asked"), []);
    scene.catalog.record(&disk, &found("a", "h2", Some("gone")), LEASE).await.expect("renewed");
    assert!(scene.catalog.live_records(&disk).await.expect("records")[0].dismissed);
    scene.catalog.record(&disk, &found("a", "h4", Some("gone")), LEASE).await.expect("recorded");
    assert!(!scene.catalog.live_records(&disk).await.expect("records")[0].dismissed);

    // An instance under the same name that finds what fits leaves the record alone while it lives.
    scene.catalog.record(&disk, &found("a", "h5", None), LEASE).await.expect("asked");
    assert_eq!(scene.catalog.live_records(&disk).await.expect("records")[0].hash, "h4");
    scene.clock.advance(LEASE / 2);
    scene.catalog.record(&disk, &found("a", "h4", Some("gone")), LEASE).await.expect("renewed");
    assert_eq!(scene.catalog.live_records(&disk).await.expect("records")[0].age, LEASE / 2);
    assert!(scene.catalog.close_record(&disk, "a").await.expect("closed"));
    assert!(!scene.catalog.close_record(&disk, "a").await.expect("asked"));
    assert_eq!(scene.catalog.live_records(&disk).await.expect("records").len(), 1);
}

/// Nothing is accepted while a live record found anything else.
pub async fn a_live_record_stops_the_accept_of_anything_else(scene: &Scene) {
    let disk = scene.attach("disk", None).await;
    let shown = scene.catalog.known_backend(&disk).await.expect("known");
    let next = PlannedMark { mark: "m1".to_owned(), sequence: 1 };
    let acceptance = Acceptance { expected: &shown, hash: "h1", next: &next, upto: scene.clock.now() };
    scene.catalog.record(&disk, &found("a", "h2", None), Duration::from_mins(2)).await.expect("recorded");
    refused(scene.catalog.accept_mark(&disk, acceptance).await, Verdict::RunAgain);
    scene.catalog.record(&disk, &found("a", "h1", Some("gone")), Duration::from_mins(2)).await.expect("recorded");
    scene.catalog.accept_mark(&disk, acceptance).await.expect("accepted");
}
