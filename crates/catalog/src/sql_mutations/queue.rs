//! Guards of the cleanup queue: one worker holds a cleanup at a time, and quotas count its bytes until they are
//! deleted.

use std::time::Duration;

use s3o_model::cleanup::Outcome;
use s3o_model::intent::Intent;

use super::Cut::Words;
use super::{Damage, broken, damage_if, guards, is_named};
use crate::conformance::fixture::{Fixture, LEASE};
use crate::{Discard, Ended, Late};

const LEAKED: &str = "bytes are on the backend and no row names them";
const CLAIMED_TWICE: &str = "two workers hold one row at a time";
const CLAIM_TAKEN: &str = "a valid claim was taken";
const UNREPORTED: &str = "bytes were written off without a finding";
const LATE_BYTES_IGNORED: &str = "the cleanup does not wait for bytes that may still arrive";
const GRACE: Duration = Duration::from_mins(10);

guards! { [sqlite]
    a_settlement_needs_its_token in a_worker_settles_after_a_requeue: "settle_cleanups",
        [Words(" AND token = $2", "")], [LEAKED];
    a_requeue_ends_the_claim in a_worker_settles_after_a_requeue: "requeue",
        [Words("token = NULL, claimed_by = NULL, claimed_at = NULL, ", "")], [LEAKED];
    a_dead_letter_needs_the_token_of_its_claim in a_worker_adds_a_dead_letter_after_its_claim: "settle_cleanups",
        [Words(" WHERE q.token = $2", "")], [broken::NAMED, broken::QUOTAS];
    a_claim_takes_only_unclaimed_cleanups in two_workers_claim: "claim_cleanups",
        [Words(" AND token IS NULL", "")], [CLAIMED_TWICE];
    a_claim_is_freed_only_when_stale in claims_are_freed_early: "free_stale_claims",
        [Words("<= :now - $1", "<= :now - $1 + $1")], [CLAIM_TAKEN];
    bytes_of_an_object_are_not_queued in a_writer_requeues_after_promotion: "requeue",
        [Words("NOT EXISTS (SELECT 1 FROM object_locations WHERE backend_name = $1 AND physical_key = $2)", "1 = 1")],
        [broken::NAMED];
    bytes_of_an_intent_are_not_queued in a_writer_requeues_before_promotion: "requeue",
        [Words("NOT EXISTS (SELECT 1 FROM pending_objects WHERE backend_name = $1 AND physical_key = $2)", "1 = 1")],
        [broken::NAMED];
    bytes_of_a_dead_letter_are_not_queued in a_writer_requeues_a_dead_letter: "requeue",
        [Words("SELECT 1 FROM cleanup_dlq WHERE", "SELECT 1 FROM cleanup_dlq WHERE 1 = 0 AND")],
        [broken::NAMED];
    a_requeue_waits_for_late_bytes in a_writer_requeues_with_late_bytes: "requeue",
        [Words(":now + CAST($5 AS BIGINT)", "CAST(NULL AS BIGINT) + CAST($5 AS BIGINT)")], [LATE_BYTES_IGNORED];
    a_requeue_deletes_the_written_off_finding in a_writer_requeues_after_a_discard: "requeue",
        [Words("kind = 'written_off'", "kind = 'another'")], [broken::NAMED];
    a_discard_leaves_a_finding in a_dead_letter_is_written_off: "discard_dead_letters",
        [Words(" WHERE d.token = $1", " WHERE 1 = 0 AND d.token = $1")], [UNREPORTED];
    a_discard_subtracts_orphan_bytes in a_dead_letter_is_written_off: "discard_dead_letters",
        [Words("orphan_bytes = orphan_bytes - s.n", "orphan_bytes = orphan_bytes - s.n + s.n")], [broken::QUOTAS];
    a_requeue_adds_orphan_bytes in a_writer_requeues_after_cleanup: "requeue",
        [Words("orphan_bytes = orphan_bytes + $3", "orphan_bytes = orphan_bytes + $3 - $3")], [broken::QUOTAS];
    a_settlement_subtracts_orphan_bytes in a_cleanup_is_settled: "settle_cleanups",
        [Words("orphan_bytes = orphan_bytes - s.n", "orphan_bytes = orphan_bytes - s.n + s.n")], [broken::QUOTAS];
    a_quota_drift_is_repaired_once in two_audits_find_one_drift: "repair_quotas",
        [Words(" AND repairs = $6", "")], [broken::QUOTAS];
}

/// A dropped write with an unknown outcome: its bytes may arrive for another hour.
async fn dropped_write(fixture: &Fixture) -> Intent {
    let bucket = fixture.bucket("data").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    let late = Late::Within(Duration::from_hours(1));
    fixture.catalog.drop_write(intent.write, late).await.expect("dropped");
    intent
}

/// The worker finds no bytes after that hour. Then the bytes arrive, the writer requeues them, and the worker settles.
async fn a_worker_settles_after_a_requeue(fixture: &Fixture) -> Damage {
    let intent = dropped_write(fixture).await;
    fixture.clock.advance(Duration::from_hours(1));
    let (token, claimed) = fixture.claim(9).await;
    assert_eq!(claimed.len(), 1);
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("queued again");
    fixture.settle(token, &claimed, &Outcome::DoneAbsent).await;
    damage_if(!is_named(fixture, &intent.physical_key).await, LEAKED)
}

async fn a_worker_adds_a_dead_letter_after_its_claim(fixture: &Fixture) -> Damage {
    dropped_write(fixture).await;
    let (token, claimed) = fixture.claim(9).await;
    fixture.settle(token, &claimed, &Outcome::Deferred).await;
    let (_, again) = fixture.claim(9).await;
    assert_eq!(again.len(), 1);
    fixture.settle(token, &claimed, &Outcome::DeadLetter { why: "refused".to_owned() }).await;
    Damage::new()
}

async fn two_workers_claim(fixture: &Fixture) -> Damage {
    dropped_write(fixture).await;
    let (first, second) = (fixture.claim(9).await, fixture.claim(9).await);
    damage_if(first.1.len() + second.1.len() > 1, CLAIMED_TWICE)
}

async fn claims_are_freed_early(fixture: &Fixture) -> Damage {
    dropped_write(fixture).await;
    fixture.claim(9).await;
    fixture.wait_almost(GRACE);
    let freed = fixture.catalog.free_stale_claims(GRACE, fixture.token()).await.expect("an answer");
    damage_if(!freed.is_empty(), CLAIM_TAKEN)
}

/// A write that a reaper claimed, and promoted if `promoted` is set.
async fn taken_over(fixture: &Fixture, promoted: bool) -> Intent {
    let bucket = fixture.bucket("data").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    fixture.clock.advance(LEASE);
    let token = fixture.claim_expired_writes(1).await;
    if promoted {
        fixture.promote(&intent, token).await.expect("promoted");
    }
    intent
}

async fn a_writer_requeues_after_promotion(fixture: &Fixture) -> Damage {
    let intent = taken_over(fixture, true).await;
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("an answer");
    Damage::new()
}

async fn a_writer_requeues_before_promotion(fixture: &Fixture) -> Damage {
    let intent = taken_over(fixture, false).await;
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("an answer");
    Damage::new()
}

async fn a_writer_requeues_a_dead_letter(fixture: &Fixture) -> Damage {
    let intent = dropped_write(fixture).await;
    let (token, claimed) = fixture.claim(9).await;
    fixture.settle(token, &claimed, &Outcome::DeadLetter { why: "refused".to_owned() }).await;
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("an answer");
    Damage::new()
}

async fn a_writer_requeues_with_late_bytes(fixture: &Fixture) -> Damage {
    let intent = dropped_write(fixture).await;
    fixture.clean_up().await;
    let ended = Ended { late: Late::Within(GRACE), ..Ended::default() };
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &ended).await.expect("queued again");
    let (_, claimed) = fixture.claim(9).await;
    damage_if(claimed.iter().any(|cleanup| cleanup.absent_ok_after.is_none()), LATE_BYTES_IGNORED)
}

/// Discards a dead letter and writes its bytes off.
async fn written_off(fixture: &Fixture) -> Intent {
    let intent = dropped_write(fixture).await;
    let (token, claimed) = fixture.claim(9).await;
    fixture.settle(token, &claimed, &Outcome::DeadLetter { why: "refused".to_owned() }).await;
    let id = fixture.catalog.newest_dead_letter().await.expect("an answer").expect("a dead letter");
    let discard = Discard { id, written_off: Some("{}".to_owned()) };
    fixture.catalog.discard_dead_letters(&[discard], fixture.token()).await.expect("discarded");
    intent
}

async fn a_writer_requeues_after_a_discard(fixture: &Fixture) -> Damage {
    let intent = written_off(fixture).await;
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("queued again");
    Damage::new()
}

async fn a_dead_letter_is_written_off(fixture: &Fixture) -> Damage {
    written_off(fixture).await;
    damage_if(fixture.catalog.written_off().await.expect("an answer").is_empty(), UNREPORTED)
}

async fn a_writer_requeues_after_cleanup(fixture: &Fixture) -> Damage {
    let intent = dropped_write(fixture).await;
    fixture.clean_up().await;
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &Ended::default()).await.expect("queued again");
    Damage::new()
}

async fn a_cleanup_is_settled(fixture: &Fixture) -> Damage {
    dropped_write(fixture).await;
    fixture.clean_up().await;
    Damage::new()
}

async fn two_audits_find_one_drift(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.put(bucket, "a", 50).await;
    fixture.change("UPDATE backend_quotas SET used_bytes = used_bytes + 7 WHERE used_bytes > 0", vec![]).await;
    let audits = [
        fixture.catalog.audit_quotas().await.expect("quota usage"),
        fixture.catalog.audit_quotas().await.expect("quota usage"),
    ];
    for found in audits.iter().flatten().filter(|found| found.drift_bytes() > 0) {
        fixture.catalog.repair_quotas(found).await.expect("a repair");
    }
    Damage::new()
}
