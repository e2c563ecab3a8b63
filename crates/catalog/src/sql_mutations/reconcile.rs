//! Guards of reconcile passes: nothing of an invalid, overtaken or foreign pass is acted on, and no good copy is lost.

use std::time::Duration;

use s3o_model::reconcile::FindingAction;
use s3o_model::target::Target;

use super::Cut::{Guard, Words};
use super::{Damage, damage_if, guards};
use crate::conformance::fixture::reconcile::{BETWEEN_PASSES, stray};
use crate::conformance::fixture::{Fixture, backend};
use crate::{Acceptance, Decision, IdentityRecord, PlannedMark, ReconcilePass, StagedFinding, UnnamedKey};

const OVERTAKEN: &str = "an instance that was overtaken stored its findings";
const OTHER_BYTES: &str = "other bytes than a pass saw are deleted";
const OTHER_STORE: &str = "findings of another store are acted on";
const UNSEEN: &str = "a finding that a valid pass did not see is acted on";
const LOST_COPY: &str = "a copy is lost although another one is good";
const KEPT: &str = "bytes are deleted that no operator and no pass wants to delete any more";
const APPROVED: &str = "an approval covers what was found later";

guards! { [sqlite]
    a_page_is_stored_at_the_position_that_was_read in two_instances_store_a_page: "store_pass_page",
        [Words(" AND position = $2 AND state = 'open'", "")], [OVERTAKEN];
    an_overtaken_instance_stores_nothing in two_instances_store_a_page: "store_pass_page",
        [Guard("UPDATE reconcile_passes SET position")], [OVERTAKEN];
    a_page_of_a_cancelled_pass_is_not_stored in a_cancelled_pass_continues: "store_pass_page",
        [Words(" AND state = 'open'", "")], [OVERTAKEN];
    other_bytes_are_another_finding in a_stray_key_is_written_again: "fold_pass",
        [Words("s.size_bytes <> f.size_bytes OR s.fingerprint <> f.fingerprint", "1 = 0")],
        [OTHER_BYTES];
    unseen_findings_are_dropped in a_pass_does_not_see_a_finding: "end_folding",
        [Words(" AND pass_id < $2 ORDER BY", " AND 1 = 0 ORDER BY"),
         Words("f.pass_id < $1", "1 = 0")], [UNSEEN];
    a_pass_that_folds_is_acted_on_when_all_is_folded in a_fold_is_interrupted: "end_folding",
        [Words(" AND NOT EXISTS (SELECT 1 FROM findings f WHERE f.backend_name = reconcile_passes.backend_name \
            AND f.pass_id < $1)", "")], [UNSEEN];
    a_disputed_backend_closes_no_pass in an_instance_finds_another_store: "close_pass",
        [Words("reason IS NOT NULL", "1 = 0")], [OTHER_STORE];
    an_accept_discards_findings in a_store_is_exchanged_and_accepted: "accept_mark",
        [Words("DELETE FROM findings WHERE backend_name = $1 AND pass_id IS NOT NULL",
               "DELETE FROM findings WHERE backend_name = $1 AND 1 = 0")], [OTHER_STORE];
    an_accept_discards_open_passes in a_store_is_exchanged_during_a_pass: "accept_mark",
        [Words("AND state IN ('open', 'folding', 'acting', 'done')", "AND 1 = 0")], [OTHER_STORE];
    a_good_copy_keeps_its_content in one_of_two_copies_is_suspect: "lose_copy",
        [Words("l.state = 'present'", "1 = 0")], [LOST_COPY];
    a_present_copy_is_not_lost in a_copy_recovers: "lose_copy",
        [Words(" AND state = 'suspect' AND NOT EXISTS", " AND NOT EXISTS")], [LOST_COPY];
    a_dismissed_finding_is_not_queued in a_finding_is_dismissed_meanwhile: "enqueue_found",
        [Words(" AND dismissed = 0", "")], [KEPT];
    a_finding_that_was_dropped_is_not_queued in a_finding_is_dropped_meanwhile: "enqueue_found",
        [Words("AND dismissed = 0)", "OR 1 = 1)")], [KEPT];
    a_cancelled_pass_queues_nothing in a_pass_is_cancelled_meanwhile: "enqueue_found",
        [Guard("SELECT id FROM reconcile_passes")], [KEPT];
    an_approval_covers_what_was_stored in a_held_pass_is_approved: "read",
        [Words("f.id <= b.approved_finding", "b.approved_finding > 0")], [APPROVED];
}

/// True if the newest pass would delete the bytes of this key.
async fn is_removed(fixture: &Fixture, key: &str) -> bool {
    fixture.actions().await.iter().any(|(found, action)| found == key && *action == FindingAction::Remove)
}

async fn is_staged(fixture: &Fixture, key: &str) -> bool {
    let sql = "SELECT 1 FROM reconcile_findings WHERE physical_key = $1";
    !fixture.rows(sql, crate::params![key]).await.is_empty()
}

async fn two_instances_store_a_page(fixture: &Fixture) -> Damage {
    fixture.attach("disk", None).await;
    let pass = fixture.begun_pass().await;
    fixture.catalog.store_pass_page(&pass, &fixture.last_page(vec![stray("a~1")])).await.expect("stored");
    fixture.catalog.store_pass_page(&pass, &fixture.last_page(vec![stray("late~1")])).await.unwrap_or_default();
    damage_if(is_staged(fixture, "late~1").await, OVERTAKEN)
}

async fn a_cancelled_pass_continues(fixture: &Fixture) -> Damage {
    let disk = fixture.attach("disk", None).await;
    let pass = fixture.begun_pass().await;
    assert!(fixture.catalog.cancel_pass(&disk).await.expect("cancelled"));
    fixture.catalog.store_pass_page(&pass, &fixture.last_page(vec![stray("late~1")])).await.unwrap_or_default();
    damage_if(is_staged(fixture, "late~1").await, OVERTAKEN)
}

/// The second pass sees other bytes: a client of the store wrote them after the first pass.
async fn a_stray_key_is_written_again(fixture: &Fixture) -> Damage {
    fixture.attach("disk", None).await;
    fixture.valid_pass(vec![stray("a~1")]).await;
    fixture.clock.advance(BETWEEN_PASSES);
    fixture.valid_pass(vec![StagedFinding { fingerprint: "new".to_owned(), ..stray("a~1") }]).await;
    damage_if(is_removed(fixture, "a~1").await, OTHER_BYTES)
}

/// The pass between did not see the key: its bytes were not there, or a row named them.
async fn a_pass_does_not_see_a_finding(fixture: &Fixture) -> Damage {
    fixture.attach("disk", None).await;
    fixture.valid_pass(vec![stray("a~1")]).await;
    fixture.valid_pass(vec![]).await;
    fixture.clock.advance(BETWEEN_PASSES);
    fixture.valid_pass(vec![stray("a~1")]).await;
    damage_if(is_removed(fixture, "a~1").await, UNSEEN)
}

/// One step drops a part of the findings that the pass did not see.
async fn a_fold_is_interrupted(fixture: &Fixture) -> Damage {
    fixture.attach("disk", None).await;
    fixture.valid_pass((0..600).map(|number| stray(&format!("{number:03}~1"))).collect()).await;
    let pass = fixture.listed_pass(vec![]).await;
    fixture.catalog.close_pass(&pass, None).await.expect("closed");
    let closed = fixture.newest_pass().await;
    let is_acting = !fixture.catalog.fold_pass(&closed).await.expect("a step");
    damage_if(is_acting && !fixture.findings().await.is_empty(), UNSEEN)
}

async fn an_instance_finds_another_store(fixture: &Fixture) -> Damage {
    let disk = fixture.attach("disk", None).await;
    let pass = fixture.listed_pass(vec![stray("a~1")]).await;
    let (host, found, hash) = ("a".to_owned(), "{}".to_owned(), "h".to_owned());
    let reason = Some("another store".to_owned());
    let record = IdentityRecord { host, found, hash, reason, dismissed: false, age: Duration::ZERO };
    fixture.catalog.record(&disk, &record, Duration::from_mins(2)).await.expect("recorded");
    damage_if(fixture.catalog.close_pass(&pass, None).await.is_ok(), OTHER_STORE)
}

async fn accept(fixture: &Fixture) {
    let disk = backend("disk");
    let expected = fixture.catalog.known_backend(&disk).await.expect("known");
    let next = PlannedMark { mark: "next".to_owned(), sequence: 1 };
    let acceptance = Acceptance { expected: &expected, hash: "h", next: &next, upto: fixture.now() };
    fixture.catalog.accept_mark(&disk, acceptance).await.expect("accepted");
}

/// A pass over the new store sees a key that the old one had, too.
async fn a_store_is_exchanged_and_accepted(fixture: &Fixture) -> Damage {
    fixture.attach("disk", None).await;
    fixture.valid_pass(vec![stray("a~1")]).await;
    accept(fixture).await;
    fixture.clock.advance(BETWEEN_PASSES);
    let born_at = Some(fixture.now());
    fixture.valid_pass(vec![StagedFinding { born_at, ..stray("a~1") }]).await;
    damage_if(fixture.findings().await.iter().any(|found| found.passes > 1), OTHER_STORE)
}

/// The first half of a pass listed the old store.
async fn a_store_is_exchanged_during_a_pass(fixture: &Fixture) -> Damage {
    fixture.attach("disk", None).await;
    let pass = fixture.listed_pass(vec![stray("a~1")]).await;
    accept(fixture).await;
    damage_if(fixture.catalog.close_pass(&pass, None).await.is_ok(), OTHER_STORE)
}

async fn one_of_two_copies_is_suspect(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    let copy = fixture.copy_on(content, "disk").await;
    assert!(fixture.catalog.suspect(content, &copy).await.expect("marked"));
    damage_if(fixture.catalog.lose_copy(content, &copy, 0).await.expect("an answer"), LOST_COPY)
}

/// A reader confirms the copy between the probe and the unit.
async fn a_copy_recovers(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let copy = fixture.copy_on(content, "disk").await;
    assert!(fixture.catalog.suspect(content, &copy).await.expect("marked"));
    fixture.catalog.confirm_copy(content, &copy, fixture.now()).await.expect("confirmed");
    damage_if(fixture.catalog.lose_copy(content, &copy, 0).await.expect("an answer"), LOST_COPY)
}

/// True if the worker, which read the findings before, queues the bytes.
async fn is_queued(fixture: &Fixture, pass: &ReconcilePass) -> bool {
    let key = UnnamedKey { physical_key: "a~1".to_owned(), target: Target::Key, size_bytes: 5, expected: None };
    let queued = fixture.catalog.enqueue_found(pass, &[key], fixture.token()).await;
    queued.is_ok_and(|queued| !queued.is_empty())
}

async fn a_finding_is_dismissed_meanwhile(fixture: &Fixture) -> Damage {
    fixture.attach("disk", None).await;
    let pass = fixture.valid_pass(vec![stray("a~1")]).await;
    let found = fixture.findings().await.remove(0);
    fixture.catalog.decide_finding(found.id, Decision::Dismiss).await.expect("an answer").expect("dismissed");
    damage_if(is_queued(fixture, &pass).await, KEPT)
}

async fn a_finding_is_dropped_meanwhile(fixture: &Fixture) -> Damage {
    fixture.attach("disk", None).await;
    let pass = fixture.valid_pass(vec![stray("b~1")]).await;
    damage_if(is_queued(fixture, &pass).await, KEPT)
}

async fn a_pass_is_cancelled_meanwhile(fixture: &Fixture) -> Damage {
    let disk = fixture.attach("disk", None).await;
    let pass = fixture.valid_pass(vec![stray("a~1")]).await;
    assert!(fixture.catalog.cancel_pass(&disk).await.expect("cancelled"));
    damage_if(is_queued(fixture, &pass).await, KEPT)
}

async fn a_held_pass_is_approved(fixture: &Fixture) -> Damage {
    fixture.attach("disk", None).await;
    let pass = fixture.listed_pass(vec![stray("a~1")]).await;
    fixture.fold(&pass, Some("too many")).await;
    let held = fixture.findings().await.into_iter().find(|found| found.kind == "held").expect("a finding");
    fixture.catalog.decide_finding(held.id, Decision::Approve).await.expect("an answer").expect("approved");
    fixture.valid_pass(vec![stray("a~1"), stray("later~1")]).await;
    assert!(is_removed(fixture, "a~1").await);
    damage_if(is_removed(fixture, "later~1").await, APPROVED)
}
