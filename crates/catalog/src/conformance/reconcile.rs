//! Tests of reconcile passes: their pages, their end, and which findings count.

use std::time::Duration;

use s3o_model::reconcile::{FindingAction, FindingKind, PassCounts};
use s3o_model::target::Target;

use super::fixture::reconcile::{BETWEEN_PASSES, staged, stray};
use super::fixture::{Fixture, backend};
use super::refused;
use crate::{Finding, FolderCount, IdentityRecord, PassPage, PassState, StagedFinding, Verdict};

fn keys(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|found| found.physical_key.as_str()).collect()
}

/// A second pass over the same backend begins only after the first one ended.
pub async fn unfinished_pass_is_joined(fixture: &Fixture) {
    let disk = fixture.attach("disk", None).await;
    let begin = async || fixture.catalog.begin_pass(&disk, "start", fixture.instance()).await.expect("an answer");
    assert!(begin().await);
    let pass = fixture.newest_pass().await;
    assert_eq!((pass.state, pass.cut_off, pass.position.as_str()), (PassState::Open, fixture.now(), "start"));
    assert!(!begin().await);
    assert!(fixture.catalog.invalidate_pass(&pass, "away").await.expect("ended"));
    assert!(begin().await);
    assert_ne!(fixture.newest_pass().await.id, pass.id);
    let unknown = fixture.catalog.begin_pass(&backend("west"), "start", fixture.instance()).await;
    assert!(!unknown.expect("an answer"), "a backend that was never attached");
}

/// Two instances continue one pass: the second one stops, and its findings are not stored.
pub async fn page_is_stored_by_one_instance(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    let pass = fixture.begun_pass().await;
    let folder = FolderCount { folder: "theirs/".to_owned(), keys: 2, bytes: 9 };
    let first =
        PassPage { position: "a".to_owned(), folders: vec![folder.clone()], ..fixture.last_page(vec![stray("a~1")]) };
    fixture.catalog.store_pass_page(&pass, &first).await.expect("stored");
    let late = fixture.last_page(vec![stray("b~1")]);
    refused(fixture.catalog.store_pass_page(&pass, &late).await, Verdict::RunAgain);
    let stored = fixture.newest_pass().await;
    assert_eq!((stored.position.as_str(), &stored.counts), ("a", &first.counts));
    let second = PassPage { folders: vec![folder], ..fixture.last_page(vec![stray("a~1"), stray("c~1")]) };
    fixture.catalog.store_pass_page(&stored, &second).await.expect("stored");
    let folders = fixture.catalog.foreign_folders(pass.id, 9).await.expect("a query");
    assert_eq!(folders, [FolderCount { folder: "theirs/".to_owned(), keys: 4, bytes: 18 }]);
    fixture.fold(&fixture.newest_pass().await, None).await;
    assert_eq!(keys(&fixture.findings().await), ["a~1", "c~1"]);
}

/// Neither an open nor an invalid pass changes the findings of the valid one before it.
pub async fn findings_count_when_their_pass_is_valid(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    fixture.valid_pass(vec![stray("a~1")]).await;
    let before = fixture.findings().await;
    let open = fixture.listed_pass(vec![stray("a~1"), stray("b~1")]).await;
    assert_eq!(fixture.findings().await, before);
    assert!(fixture.catalog.invalidate_pass(&open, "a page is missing").await.expect("ended"));
    refused(fixture.catalog.close_pass(&open, None).await, Verdict::RunAgain);
    while fixture.catalog.forget_staged().await.expect("a step") {}
    assert_eq!(fixture.number("SELECT count(*) FROM reconcile_findings").await, 0);
    assert_eq!(fixture.findings().await, before);
    let ended = fixture.newest_pass().await;
    assert_eq!((ended.state, ended.reason.as_deref()), (PassState::Invalid, Some("a page is missing")));
}

/// The second pass confirms what is the same. Other bytes under the key are another finding, without a decision.
pub async fn second_pass_confirms_the_same_bytes(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    fixture.valid_pass(vec![stray("same~1"), stray("grown~1"), stray("rewritten~1"), stray("gone~1")]).await;
    let first = fixture.now();
    for found in fixture.findings().await {
        fixture.catalog.decide_finding(found.id, crate::Decision::Dismiss).await.expect("decided").expect("accepted");
    }
    fixture.clock.advance(BETWEEN_PASSES);
    let grown = StagedFinding { size_bytes: 6, ..stray("grown~1") };
    let rewritten = StagedFinding { fingerprint: "other".to_owned(), ..stray("rewritten~1") };
    fixture.valid_pass(vec![stray("same~1"), grown, rewritten]).await;
    let found: Vec<_> = fixture.findings().await;
    let seen: Vec<_> = found
        .iter()
        .map(|found| (found.physical_key.as_str(), found.passes, found.first_seen_at, found.is_dismissed))
        .collect();
    let now = Some(fixture.now());
    assert_eq!(seen, [("same~1", 2, Some(first), true), ("grown~1", 1, now, false), ("rewritten~1", 1, now, false)]);
    assert!(found.iter().all(|found| found.seen_at == now));
}

/// The grace counts from the second pass if the first one ran while the clock was ahead.
pub async fn first_pass_of_a_clock_that_was_ahead_counts_from_now(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    fixture.valid_pass(vec![stray("a~1")]).await;
    fixture.change("UPDATE findings SET first_seen_at = first_seen_at + 1000000000000", vec![]).await;
    fixture.two_passes(vec![stray("a~1")]).await;
    assert_eq!(fixture.actions().await, [("a~1".to_owned(), FindingAction::Remove)]);
}

/// Findings under one key with another target or kind are separate.
pub async fn targets_of_a_key_are_separate_findings(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    let upload = StagedFinding { target: Target::Upload("u".to_owned()), ..staged(FindingKind::Upload, "a~1") };
    let version = StagedFinding { target: Target::Version("1".to_owned()), ..staged(FindingKind::OldVersion, "a~1") };
    fixture.two_passes(vec![upload, version]).await;
    let targets: Vec<_> =
        fixture.findings().await.into_iter().map(|found| (found.kind, found.target, found.passes)).collect();
    let expected = [("upload", "upload:u", 2), ("old_version", "version:1", 2)];
    assert_eq!(targets, expected.map(|(kind, target, passes)| (kind.to_owned(), target.to_owned(), passes)));
}

/// A crash between two steps leaves a pass that any instance continues.
pub async fn interrupted_fold_continues(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    let many = |count: usize| (0..count).map(|number| stray(&format!("{number:04}~1"))).collect::<Vec<_>>();
    fixture.valid_pass(many(1100)).await;
    fixture.clock.advance(BETWEEN_PASSES);
    let pass = fixture.listed_pass(many(600)).await;
    fixture.catalog.close_pass(&pass, None).await.expect("closed");
    let closed = fixture.newest_pass().await;
    assert!(fixture.catalog.fold_pass(&closed).await.expect("a step"));
    let begun = fixture.catalog.begin_pass(&backend("disk"), "start", fixture.instance()).await;
    assert!(!begun.expect("an answer"), "the fold must end first");
    while fixture.catalog.fold_pass(&fixture.newest_pass().await).await.expect("a step") {}
    let found = fixture.findings().await;
    assert!(found.len() == 600 && found.iter().all(|found| found.passes == 2), "{}", found.len());
    assert_eq!(fixture.number("SELECT count(*) FROM reconcile_findings").await, 0);
}

/// While an instance finds another store, no pass is valid.
pub async fn disputed_backend_closes_no_pass(fixture: &Fixture) {
    let disk = fixture.attach("disk", None).await;
    let pass = fixture.listed_pass(vec![stray("a~1")]).await;
    let reason = Some("another store".to_owned());
    let (host, found, hash) = ("a".to_owned(), "{}".to_owned(), "h".to_owned());
    let record = IdentityRecord { host, found, hash, reason, dismissed: false, age: Duration::ZERO };
    fixture.catalog.record(&disk, &record, Duration::from_mins(2)).await.expect("recorded");
    refused(fixture.catalog.close_pass(&pass, None).await, Verdict::RunAgain);
    fixture.catalog.close_record(&disk, "a").await.expect("closed");
    fixture.fold(&pass, None).await;
}

/// A cancelled pass stores no further page.
pub async fn cancelled_pass_ends(fixture: &Fixture) {
    let disk = fixture.attach("disk", None).await;
    assert!(!fixture.catalog.cancel_pass(&disk).await.expect("an answer"));
    let pass = fixture.begun_pass().await;
    assert!(fixture.catalog.cancel_pass(&disk).await.expect("an answer"));
    refused(fixture.catalog.store_pass_page(&pass, &fixture.last_page(vec![])).await, Verdict::RunAgain);
    assert_eq!(fixture.newest_pass().await.state, PassState::Cancelled);
    fixture.valid_pass(vec![stray("a~1")]).await;
    assert!(fixture.catalog.cancel_pass(&disk).await.expect("an answer"), "what is left to act on");
    assert_eq!((fixture.newest_pass().await.state, fixture.findings().await.len()), (PassState::Done, 1));
}

/// Failed attempts are counted until the next page.
pub async fn failures_are_counted_until_the_next_page(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    let pass = fixture.begun_pass().await;
    for failures in 1..=3 {
        fixture.catalog.note_pass_failure(&pass, "away").await.expect("counted");
        let noted = fixture.newest_pass().await;
        assert_eq!((noted.failures, noted.reason.as_deref()), (failures, Some("away")));
    }
    fixture.catalog.store_pass_page(&pass, &fixture.last_page(vec![])).await.expect("stored");
    let stored = fixture.newest_pass().await;
    assert_eq!((stored.failures, stored.reason), (0, None));
    assert_eq!(stored.counts, PassCounts { keys: 7, ..PassCounts::default() });
}

/// Only the newest passes are kept, and their folders.
pub async fn old_passes_are_forgotten(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    for _ in 0..15 {
        fixture.valid_pass(vec![]).await;
    }
    fixture.begun_pass().await;
    assert_eq!(fixture.number("SELECT count(*) FROM reconcile_passes").await, 10);
    assert_eq!(fixture.number("SELECT count(*) FROM reconcile_passes WHERE state = 'acting'").await, 0);
}

/// Bytes that are proven absent are no longer written off.
pub async fn written_off_finding_is_closed_when_its_bytes_are_absent(fixture: &Fixture) {
    const NOTE: &str = "INSERT INTO findings (kind, backend_name, physical_key, size_bytes, detail, created_at) \
         VALUES ($1, 'disk', $2, 5, '', 0)";
    fixture.attach("disk", None).await;
    for (kind, key) in [("written_off", "a~1"), ("written_off", "b~1"), ("absent_after_accept", "a~1")] {
        fixture.change(NOTE, crate::params![kind, key]).await;
    }
    fixture.valid_pass(vec![StagedFinding { kind: None, ..stray("a~1") }]).await;
    let left: Vec<_> = fixture.findings().await.into_iter().map(|found| (found.kind, found.physical_key)).collect();
    let expected = [("written_off", "b~1"), ("absent_after_accept", "a~1")];
    assert_eq!(left, expected.map(|(kind, key)| (kind.to_owned(), key.to_owned())));
}

/// Actions wait for the second pass, and a page of them is acted on once.
pub async fn actions_advance_once(fixture: &Fixture) {
    fixture.attach("disk", None).await;
    fixture.valid_pass(vec![stray("a~1")]).await;
    assert_eq!(fixture.actions().await, [("a~1".to_owned(), FindingAction::Wait)]);
    fixture.clock.advance(BETWEEN_PASSES);
    let pass = fixture.valid_pass(vec![stray("a~1")]).await;
    assert_eq!(fixture.actions().await, [("a~1".to_owned(), FindingAction::Remove)]);
    fixture.catalog.advance_actions(&pass, 9, false).await.expect("advanced");
    refused(fixture.catalog.advance_actions(&pass, 9, false).await, Verdict::RunAgain);
    let advanced = fixture.newest_pass().await;
    fixture.catalog.advance_actions(&advanced, 9, true).await.expect("done");
    let page = fixture.catalog.action_page(&advanced, 0, (BETWEEN_PASSES, 9)).await;
    refused(page, Verdict::RunAgain);
    assert_eq!(fixture.newest_pass().await.state, PassState::Done);
}
