//! What keeps cleanups in one hand, and their bytes in the books until they are gone.

use std::time::Duration;

use s3o_model::cleanup::Outcome;
use s3o_model::intent::Intent;

use super::Cut::Words;
use super::{Told, broken, is_named, safeties, told};
use crate::conformance::scene::{LEASE, Scene};
use crate::{Audits, Cleanups, DeadLetters, Discard, Ended, Intents, Late};

const LEAKED: &str = "bytes lie on the backend and no row names them";
const TWO_HANDS: &str = "two hold one row at a time";
const CLAIM_TAKEN: &str = "a claim that holds was taken";
const SILENT: &str = "bytes were written off and nobody is told";
const NOT_AWAITED: &str = "bytes that may still land are not looked out for";
const GRACE: Duration = Duration::from_mins(10);

safeties! { [sqlite]
    a_settlement_carries_its_token by a_slow_worker_settles_late: "settle_cleanups",
        [Words(" AND token = $2", "")], [LEAKED];
    a_requeue_ends_the_claim by a_slow_worker_settles_late: "requeue",
        [Words("token = NULL, claimed_by = NULL, claimed_at = NULL, ", "")], [LEAKED];
    a_burial_carries_its_token by a_slow_worker_buries_late: "settle_cleanups",
        [Words(" WHERE q.token = $2", "")], [broken::NAMED, broken::BOOKS];
    a_claim_takes_what_nobody_has by two_workers_claim: "claim_cleanups",
        [Words(" AND token IS NULL", "")], [TWO_HANDS];
    a_claim_is_freed_only_after_its_time by a_claim_is_freed: "free_stale_claims",
        [Words("<= :now - $1", "<= :now - $1 + $1")], [CLAIM_TAKEN];
    bytes_of_an_object_are_not_queued by a_writer_comes_back_after_promotion: "requeue",
        [Words("NOT EXISTS (SELECT 1 FROM object_locations WHERE backend_name = $1 AND physical_key = $2)", "1 = 1")],
        [broken::NAMED];
    bytes_of_an_intent_are_not_queued by a_writer_comes_back_before_promotion: "requeue",
        [Words("NOT EXISTS (SELECT 1 FROM pending_objects WHERE backend_name = $1 AND physical_key = $2)", "1 = 1")],
        [broken::NAMED];
    bytes_of_a_dead_letter_are_not_queued by a_writer_comes_back_after_burial: "requeue",
        [Words("NOT EXISTS (SELECT 1 FROM cleanup_dlq WHERE backend_name = $1 AND physical_key = $2)", "1 = 1")],
        [broken::NAMED];
    a_requeue_looks_out_for_late_bytes by a_writer_comes_back_uncertain: "requeue",
        [Words(":now + CAST($6 AS BIGINT)", "CAST(NULL AS BIGINT) + CAST($6 AS BIGINT)")], [NOT_AWAITED];
    a_requeue_takes_back_what_was_written_off by a_writer_comes_back_after_a_discard: "requeue",
        [Words("kind = 'written_off'", "kind = 'another'")], [broken::NAMED];
    a_discard_leaves_a_finding by a_dead_letter_is_written_off: "discard_dead_letters",
        [Words(" WHERE d.token = $1", " WHERE 1 = 0 AND d.token = $1")], [SILENT];
    a_discard_takes_its_bytes_off_the_books by a_dead_letter_is_written_off: "discard_dead_letters",
        [Words("orphan_bytes = orphan_bytes - s.n", "orphan_bytes = orphan_bytes - s.n + s.n")], [broken::BOOKS];
    a_requeue_books_what_left_the_books by a_writer_comes_back_after_cleanup: "requeue",
        [Words("orphan_bytes = orphan_bytes + $3", "orphan_bytes = orphan_bytes + $3 - $3")], [broken::BOOKS];
    a_settlement_releases_what_it_settles by everything_is_cleaned_up: "settle_cleanups",
        [Words("orphan_bytes = orphan_bytes - s.n", "orphan_bytes = orphan_bytes - s.n + s.n")], [broken::BOOKS];
    a_drift_is_applied_once by two_audits_find_one_drift: "repair_books",
        [Words(" AND repairs = $6", "")], [broken::BOOKS];
}

/// A write whose end is unknown, given up; its bytes may land for an hour.
async fn unknown_end(scene: &Scene) -> Intent {
    let bucket = scene.bucket("house").await;
    let intent = scene.staged(bucket, "a", 5).await;
    let late = Late::Within(Duration::from_hours(1));
    scene.catalog.drop_write(intent.write, late).await.expect("given up");
    intent
}

/// The worker looks after the window and finds nothing; the bytes land, the writer says so; then the worker settles.
async fn a_slow_worker_settles_late(scene: &Scene) -> Told {
    let intent = unknown_end(scene).await;
    scene.clock.advance(Duration::from_hours(1));
    let (token, claimed) = scene.claim(9).await;
    assert_eq!(claimed.len(), 1);
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("queued again");
    scene.settle(token, &claimed, &Outcome::DoneAbsent).await;
    told(!is_named(scene, &intent.physical_key).await, LEAKED)
}

async fn a_slow_worker_buries_late(scene: &Scene) -> Told {
    unknown_end(scene).await;
    let (token, claimed) = scene.claim(9).await;
    scene.settle(token, &claimed, &Outcome::Deferred).await;
    let (_, again) = scene.claim(9).await;
    assert_eq!(again.len(), 1);
    scene.settle(token, &claimed, &Outcome::DeadLetter { why: "refused".to_owned() }).await;
    Told::new()
}

async fn two_workers_claim(scene: &Scene) -> Told {
    unknown_end(scene).await;
    let (first, second) = (scene.claim(9).await, scene.claim(9).await);
    told(first.1.len() + second.1.len() > 1, TWO_HANDS)
}

async fn a_claim_is_freed(scene: &Scene) -> Told {
    unknown_end(scene).await;
    scene.claim(9).await;
    scene.wait_almost(GRACE);
    let freed = scene.catalog.free_stale_claims(GRACE, scene.token()).await.expect("a look");
    told(!freed.is_empty(), CLAIM_TAKEN)
}

/// A write that a reaper took over; `promoted` says whether it is finished already.
async fn taken_over(scene: &Scene, promoted: bool) -> Intent {
    let bucket = scene.bucket("house").await;
    let intent = scene.staged(bucket, "a", 5).await;
    scene.clock.advance(LEASE);
    let token = scene.claim_left(1).await;
    if promoted {
        scene.promote(&intent, token).await.expect("promoted");
    }
    intent
}

async fn a_writer_comes_back_after_promotion(scene: &Scene) -> Told {
    let intent = taken_over(scene, true).await;
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("a look");
    Told::new()
}

async fn a_writer_comes_back_before_promotion(scene: &Scene) -> Told {
    let intent = taken_over(scene, false).await;
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("a look");
    Told::new()
}

async fn a_writer_comes_back_after_burial(scene: &Scene) -> Told {
    let intent = unknown_end(scene).await;
    let (token, claimed) = scene.claim(9).await;
    scene.settle(token, &claimed, &Outcome::DeadLetter { why: "refused".to_owned() }).await;
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("a look");
    Told::new()
}

async fn a_writer_comes_back_uncertain(scene: &Scene) -> Told {
    let intent = unknown_end(scene).await;
    scene.clean_up().await;
    let remains = Ended { late: Late::Within(GRACE), ..Ended::default() };
    scene.catalog.requeue(&intent, &remains).await.expect("queued again");
    let (_, claimed) = scene.claim(9).await;
    told(claimed.iter().any(|cleanup| cleanup.absent_ok_after.is_none()), NOT_AWAITED)
}

/// A dead letter of which somebody decided that its bytes may stay.
async fn written_off(scene: &Scene) -> Intent {
    let intent = unknown_end(scene).await;
    let (token, claimed) = scene.claim(9).await;
    scene.settle(token, &claimed, &Outcome::DeadLetter { why: "refused".to_owned() }).await;
    let id = scene.catalog.newest_dead_letter().await.expect("a look").expect("a dead letter");
    let discard = Discard { id, written_off: Some("{}".to_owned()) };
    scene.catalog.discard_dead_letters(&[discard], scene.token()).await.expect("discarded");
    intent
}

async fn a_writer_comes_back_after_a_discard(scene: &Scene) -> Told {
    let intent = written_off(scene).await;
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("queued again");
    Told::new()
}

async fn a_dead_letter_is_written_off(scene: &Scene) -> Told {
    written_off(scene).await;
    told(scene.catalog.written_off().await.expect("a look").is_empty(), SILENT)
}

async fn a_writer_comes_back_after_cleanup(scene: &Scene) -> Told {
    let intent = unknown_end(scene).await;
    scene.clean_up().await;
    scene.catalog.requeue(&intent, &Ended::default()).await.expect("queued again");
    Told::new()
}

async fn everything_is_cleaned_up(scene: &Scene) -> Told {
    unknown_end(scene).await;
    scene.clean_up().await;
    Told::new()
}

async fn two_audits_find_one_drift(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.put(bucket, "a", 50).await;
    scene.change("UPDATE backend_quotas SET used_bytes = used_bytes + 7 WHERE used_bytes > 0", vec![]).await;
    let audits = [scene.catalog.audit_books().await.expect("books"), scene.catalog.audit_books().await.expect("books")];
    for found in audits.iter().flatten().filter(|found| found.drift_bytes() > 0) {
        scene.catalog.repair_books(found).await.expect("a repair");
    }
    Told::new()
}
