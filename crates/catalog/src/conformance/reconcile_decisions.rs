//! Tests of what operators decide about findings, and of lost copies.

use s3o_model::content::Location;
use s3o_model::ids::ContentId;
use s3o_model::reconcile::{FindingAction, FindingKind};
use s3o_model::target::Target;

use super::fixture::reconcile::{BETWEEN_PASSES, staged, stray};
use super::fixture::replicas::COPY_BYTES;
use super::fixture::{Fixture, backend};
use super::refused;
use crate::{
    Acceptance, Decision, DecisionRefused, PassState, PlannedMark, StagedFinding, UnnamedKey, Verdict, lost_contents,
};

async fn decide(fixture: &Fixture, key: &str, decision: Decision) -> Result<(), DecisionRefused> {
    let found = fixture.findings().await.into_iter().find(|found| found.physical_key == key).expect("a finding");
    fixture.catalog.decide_finding(found.id, decision).await.expect("an answer")
}

async fn action_of(fixture: &Fixture, key: &str) -> FindingAction {
    fixture.actions().await.into_iter().find(|(found, _)| found == key).expect("a finding").1
}

/// An approved finding is acted on after one pass, also if the pass was done.
pub async fn approval_replaces_the_second_pass(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    let pass = fixture.valid_pass(vec![stray("a~1"), stray("b~1")]).await;
    fixture.catalog.advance_actions(&pass, 9, true).await.expect("done");
    decide(fixture, "a~1", Decision::Approve).await.expect("approved");
    let again = fixture.newest_pass().await;
    assert_eq!((again.state, again.position.as_str(), again.ended_at), (PassState::Acting, "0", None));
    assert_eq!(action_of(fixture, "a~1").await, FindingAction::Remove);
    assert_eq!(action_of(fixture, "b~1").await, FindingAction::Wait);
}

/// A dismissed finding stays, and nothing follows from it.
pub async fn dismissed_finding_is_only_reported(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    fixture.valid_pass(vec![stray("a~1")]).await;
    decide(fixture, "a~1", Decision::Dismiss).await.expect("dismissed");
    fixture.clock.advance(BETWEEN_PASSES);
    fixture.valid_pass(vec![stray("a~1")]).await;
    assert_eq!(action_of(fixture, "a~1").await, FindingAction::Report);
    decide(fixture, "a~1", Decision::Approve).await.expect("approved after all");
    assert_eq!(action_of(fixture, "a~1").await, FindingAction::Remove);
}

/// Nothing is decided about findings that no pass reports, about foreign objects, and about unknown IDs.
pub async fn other_findings_are_not_decided(fixture: &Fixture) {
    const NOTE: &str = "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
         VALUES ('written_off', 'disk', 'w~1', 5, '', 0)";
    fixture.attach("disk", None).await;
    fixture.change(NOTE, vec![]).await;
    fixture.valid_pass(vec![staged(FindingKind::Foreign, "theirs")]).await;
    for (key, kind) in [("w~1", "written_off"), ("theirs", "foreign")] {
        for decision in [Decision::Approve, Decision::Dismiss] {
            assert_eq!(decide(fixture, key, decision).await, Err(DecisionRefused::Kind(kind.to_owned())));
        }
    }
    let unknown = fixture.catalog.decide_finding(1 << 40, Decision::Approve).await.expect("an answer");
    assert_eq!(unknown, Err(DecisionRefused::NoSuchFinding));
    assert_eq!(fixture.actions().await, [], "foreign objects are not acted on");
}

/// The approval of a held pass covers what was found until then, and nothing that a later pass finds.
pub async fn approval_of_a_held_pass_covers_what_was_found_until_then(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    let pass = fixture.listed_pass(vec![stray("a~1")]).await;
    fixture.fold(&pass, Some("1 of 1 keys would be deleted")).await;
    assert_eq!(action_of(fixture, "a~1").await, FindingAction::AwaitApproval);
    let held = fixture.findings().await.into_iter().find(|found| found.kind == "held").expect("a finding");
    assert!(held.detail.contains("1 of 1 keys"), "{}", held.detail);
    fixture.catalog.decide_finding(held.id, Decision::Approve).await.expect("an answer").expect("approved");
    assert_eq!(action_of(fixture, "a~1").await, FindingAction::Remove);
    assert!(fixture.findings().await.iter().all(|found| found.kind != "held" && found.is_approved));
    fixture.clock.advance(BETWEEN_PASSES);
    fixture.valid_pass(vec![stray("a~1"), stray("b~1")]).await;
    assert_eq!(action_of(fixture, "a~1").await, FindingAction::Remove);
    assert_eq!(action_of(fixture, "b~1").await, FindingAction::Wait);
}

/// The hold ends with the next pass that is plausible.
pub async fn next_plausible_pass_is_not_held(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    let pass = fixture.listed_pass(vec![stray("a~1")]).await;
    fixture.fold(&pass, Some("too many")).await;
    fixture.clock.advance(BETWEEN_PASSES);
    fixture.valid_pass(vec![stray("a~1")]).await;
    assert!(fixture.findings().await.iter().all(|found| found.kind != "held"));
    assert_eq!(action_of(fixture, "a~1").await, FindingAction::Remove);
}

/// What was found on the store before is neither confirmed nor approved on another one.
pub async fn accept_and_removal_discard_what_passes_found(fixture: &Fixture) {
    let disk = fixture.attach("disk", None).await;
    for removed in [false, true] {
        fixture.valid_pass(vec![stray("a~1")]).await;
        fixture.change("UPDATE backends SET approved_finding = 1000", vec![]).await;
        if removed {
            fixture.catalog.begin_removal(&disk).await.expect("begun");
            fixture.catalog.finish_removal(&disk).await.expect("removed");
        }
        let expected = fixture.catalog.known_backend(&disk).await.expect("known");
        let next = PlannedMark { mark: format!("mark-{removed}"), sequence: 1 };
        let acceptance = Acceptance { expected: &expected, hash: "h", next: &next, upto: fixture.now() };
        if !removed {
            fixture.catalog.accept_mark(&disk, acceptance).await.expect("accepted");
        }
        assert_eq!(fixture.findings().await, []);
        assert_eq!(fixture.newest_pass().await.state, PassState::Discarded);
        assert_eq!(fixture.number("SELECT CAST(sum(approved_finding) AS BIGINT) FROM backends").await, 0);
    }
    let begun = fixture.catalog.begin_pass(&disk, "start", fixture.instance()).await;
    assert!(!begun.expect("an answer"), "the backend was removed");
}

fn unnamed(physical_key: &str) -> UnnamedKey {
    UnnamedKey { physical_key: physical_key.to_owned(), target: Target::Key, size_bytes: 5, expected: None }
}

/// The unit that queues the bytes drops their finding; those of other targets and kinds stay.
pub async fn queued_bytes_are_no_finding_any_more(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    let upload = StagedFinding { target: Target::Upload("u".to_owned()), ..staged(FindingKind::Upload, "a~1") };
    let found = vec![stray("a~1"), stray("b~1"), upload, staged(FindingKind::Foreign, "theirs")];
    let pass = fixture.two_passes(found).await;
    let queued = fixture.catalog.enqueue_found(&pass, &[unnamed("a~1")], fixture.token()).await;
    assert_eq!((queued.expect("queued").len(), fixture.usage().await), (1, (0, 5, 0)));
    assert_eq!(fixture.catalog.waiting_removals(&backend("disk"), 9).await.expect("a query"), 1);
    let left: Vec<_> = fixture.findings().await.into_iter().map(|found| (found.kind, found.physical_key)).collect();
    let expected = [("stray", "b~1"), ("upload", "a~1"), ("foreign", "theirs")];
    assert_eq!(left, expected.map(|(kind, key)| (kind.to_owned(), key.to_owned())));
}

/// An operator decides while the worker acts: what was dismissed, dropped or cancelled since is not queued.
pub async fn bytes_are_queued_while_their_finding_stands(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    let pass = fixture.two_passes(vec![stray("kept~1"), stray("found~1"), staged(FindingKind::Foreign, "x~1")]).await;
    decide(fixture, "kept~1", Decision::Dismiss).await.expect("dismissed");
    let other = UnnamedKey { size_bytes: 6, ..unnamed("found~1") };
    let keys = [unnamed("kept~1"), unnamed("x~1"), unnamed("unseen~1"), other];
    let queued = fixture.catalog.enqueue_found(&pass, &keys, fixture.token()).await;
    assert_eq!(queued.expect("an answer"), []);
    assert!(fixture.catalog.cancel_pass(&backend("disk")).await.expect("cancelled"));
    let late = fixture.catalog.enqueue_found(&pass, &[unnamed("found~1")], fixture.token()).await;
    refused(late, Verdict::RunAgain);
    assert_eq!((fixture.queued().await.len(), fixture.usage().await), (0, (0, 0, 0)));
}

/// The copy on a backend, after a reader or a pass marked it as suspect.
async fn suspect(fixture: &Fixture, content: ContentId, name: &str) -> Location {
    let copy = fixture.copy_on(content, name).await;
    assert!(fixture.catalog.suspect(content, &copy).await.expect("marked"));
    copy
}

async fn reported_lost(fixture: &Fixture) -> usize {
    let (check, catalog) = (lost_contents(), &fixture.catalog);
    let end = catalog.page_end(check, &check.start(), 1000).await.expect("a page").expect("rows");
    catalog.broken(check, &check.start(), &end).await.expect("a query").len()
}

/// A copy becomes lost with the bytes that are left of it, and present again when they are read.
pub async fn last_copy_is_lost_and_recovered_with_its_bytes(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let copy = suspect(fixture, content, "disk").await;
    fixture.valid_pass(vec![staged(FindingKind::WrongSize, &copy.physical_key)]).await;
    assert!(fixture.catalog.lose_copy(content, &copy, 2).await.expect("lost"));
    assert!(!fixture.catalog.lose_copy(content, &copy, 2).await.expect("an answer"), "it is lost already");
    assert_eq!(fixture.counters("disk").await, (2, 0, 0));
    assert_eq!((fixture.copy_work(false).await.len(), reported_lost(fixture).await), (0, 1));
    let located = fixture.catalog.located_content(&copy.backend, &copy.physical_key).await.expect("a query");
    let located = located.expect("a location");
    assert_eq!((located.content, located.size_bytes, &located.copy), (content, COPY_BYTES, &copy));
    assert!(fixture.catalog.recover_copy(content, &copy, fixture.now()).await.expect("recovered"));
    assert!(
        !fixture.catalog.recover_copy(content, &copy, fixture.now()).await.expect("an answer"),
        "it is present already"
    );
    assert_eq!(fixture.counters("disk").await, (COPY_BYTES, 0, 0));
    assert_eq!(reported_lost(fixture).await, 0);
}

const MISSING: &str = "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
     VALUES ('missing', 'east', $1, 5, '', 0)";

/// While another copy may be good, the suspect one is replaced and not lost.
pub async fn copy_is_not_lost_while_another_may_be_good(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    let (disk, east) = (suspect(fixture, content, "disk").await, fixture.copy_on(content, "east").await);
    assert!(!fixture.catalog.lose_copy(content, &disk, 0).await.expect("an answer"), "east is present");
    assert!(fixture.catalog.suspect(content, &east).await.expect("marked"));
    assert!(!fixture.catalog.lose_copy(content, &disk, 0).await.expect("an answer"), "east was not found missing");
    fixture.change(MISSING, crate::params![&east.physical_key]).await;
    assert!(fixture.catalog.lose_copy(content, &disk, 0).await.expect("lost"));
    assert!(fixture.catalog.lose_copy(content, &east, 0).await.expect("lost"));
    assert_eq!((fixture.counters("disk").await.0, fixture.counters("east").await.0), (0, 0));
    assert!(fixture.catalog.recover_copy(content, &east, fixture.now()).await.expect("recovered"));
    assert_eq!(fixture.copy_work(false).await.len(), 1, "one copy is missing");
    assert!(fixture.catalog.begin_pass(&backend("disk"), "start", fixture.instance()).await.expect("begun"));
}
