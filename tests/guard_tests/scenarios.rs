//! The scenarios; each runs once with its guard and once without.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::layers::Fault;
use s3o_catalog::unit::Unit;
use s3o_engine::Declared;
use s3o_model::clock::millis_of;
use s3o_model::etag::Md5;
use s3o_model::ids::ClaimToken;
use s3o_model::intent::DeclaredDigests;

use crate::context::{GuardContext, GuardTestPlan, LATE, LEASE};
use crate::faulty_backend::BackendFlaws;
use crate::faulty_driver::UnitFault;
use crate::{DEAD_LETTER, FALSE_ANSWER, GuardState, WRONG_BYTES};

type ScenarioResult = (GuardContext, Vec<&'static str>);

const AGE: Duration = Duration::from_hours(24 * 1000);

async fn storing_by_name(guard: GuardState) -> GuardContext {
    let flaws = BackendFlaws { by_name: guard.is_off(), ..BackendFlaws::default() };
    GuardContext::new(GuardTestPlan { flaws, ..GuardTestPlan::default() }).await
}

pub async fn delete_waits_while_key_is_rewritten(guard: GuardState) -> ScenarioResult {
    let context = storing_by_name(guard).await;
    context.put("a", "first").await.expect("stored");
    context.harness.delete("a").await;
    context.put("a", "second").await.expect("stored");
    (context, vec![])
}

pub async fn overwrite_fails(guard: GuardState) -> ScenarioResult {
    let context = storing_by_name(guard).await;
    context.put("a", "first").await.expect("stored");
    context.driver.inject("commit_put", UnitFault::Fail);
    context.put("a", "second").await.expect_err("not committed");
    (context, vec![])
}

/// The catalog is unreachable from the commit on, so that only the intent names the bytes: as after a crash.
fn fail_commit_and_compensation(context: &GuardContext) {
    for unit in ["commit_put", "drop_write", "requeue"] {
        context.driver.inject(unit, UnitFault::Fail);
    }
}

pub async fn crash_before_commit(guard: GuardState) -> ScenarioResult {
    let context = GuardContext::new(GuardTestPlan { announce: !guard.is_off(), ..GuardTestPlan::default() }).await;
    fail_commit_and_compensation(&context);
    context.put("a", "first").await.expect_err("not committed");
    (context, vec![])
}

/// The bytes are stored but the answer is lost; when cleanup probes them, a proxy in front of the store answers 404.
pub async fn store_answers_wrong_404(guard: GuardState) -> ScenarioResult {
    let flaws = BackendFlaws { unknown_is_absent: guard.is_off(), ..BackendFlaws::default() };
    let context = GuardContext::new(GuardTestPlan { flaws, ..GuardTestPlan::default() }).await;
    let flaky = Arc::clone(&context.backend.flaky);
    flaky.fail_call(flaky.calls() + 1, Fault::After);
    context.put("a", "first").await.expect_err("no answer");
    // Cleanup reads the identity, probes the key and, if it believes the 404, deletes.
    flaky.fail_call(flaky.calls() + 2, Fault::Wrong404);
    flaky.fail_call(flaky.calls() + 3, Fault::Before);
    context.harness.clean_after(LATE).await;
    (context, vec![])
}

pub async fn write_takes_effect_late(guard: GuardState) -> ScenarioResult {
    let late_write_window = if guard.is_off() { Duration::ZERO } else { LATE };
    let context = GuardContext::new(GuardTestPlan { late_write_window, ..GuardTestPlan::default() }).await;
    context.backend.loses_writes.store(true, Ordering::Relaxed);
    context.put("a", "first").await.expect_err("no answer");
    context.harness.clean_after(Duration::from_mins(10)).await;
    context.backend.store_late();
    (context, vec![])
}

/// The driver drops the unit that queues bytes again if the guard is off.
async fn without_requeue(guard: GuardState, plan: GuardTestPlan) -> GuardContext {
    let context = GuardContext::new(plan).await;
    if guard.is_off() {
        context.driver.inject("requeue", UnitFault::Drop);
    }
    context
}

/// A write continues only after `pending_reaper` took its intent and cleanup probed its key for the last time.
async fn put_after_fence(context: &GuardContext) {
    context.backend.holds_writes.store(true, Ordering::Relaxed);
    let meanwhile = async {
        context.backend.arrived.acquire().await.expect("never closed").forget();
        context.harness.reap_after(LEASE).await;
        context.harness.clean_after(LATE).await;
        context.backend.release.add_permits(1);
    };
    let (put, ()) = tokio::join!(context.put("a", "first"), meanwhile);
    put.expect_err("fenced");
}

pub async fn slow_write_is_fenced(guard: GuardState) -> ScenarioResult {
    let context = without_requeue(guard, GuardTestPlan::default()).await;
    put_after_fence(&context).await;
    (context, vec![])
}

/// The bytes are stored and the answer of the backend is lost.
pub async fn slow_write_loses_backend_answer(guard: GuardState) -> ScenarioResult {
    let context = without_requeue(guard, GuardTestPlan::default()).await;
    let flaky = &context.backend.flaky;
    // Cleanup reads the identity, probes the key and deletes it; the fourth call is the write.
    flaky.fail_call(flaky.calls() + 4, Fault::After);
    put_after_fence(&context).await;
    assert!(context.backend.flaky.log().iter().any(|call| call.operation == "put" && call.fault.is_some()));
    (context, vec![])
}

/// The bytes are stored; the commit is lost with its answer.
pub async fn slow_write_loses_commit_answer(guard: GuardState) -> ScenarioResult {
    let context = without_requeue(guard, GuardTestPlan::default()).await;
    context.driver.inject("commit_put", UnitFault::LoseUnit(Box::pin(async {})));
    put_after_fence(&context).await;
    (context, vec![])
}

/// The bytes are stored; the catalog is unreachable.
pub async fn slow_write_fails_to_commit(guard: GuardState) -> ScenarioResult {
    let context = without_requeue(guard, GuardTestPlan::default()).await;
    context.driver.inject("commit_put", UnitFault::Fail);
    put_after_fence(&context).await;
    (context, vec![])
}

pub async fn slow_upload_starts_after_fence(guard: GuardState) -> ScenarioResult {
    let context = without_requeue(guard, GuardTestPlan { put_bytes_max: 2, ..GuardTestPlan::default() }).await;
    put_after_fence(&context).await;
    (context, vec![])
}

/// No intent names the upload, and its second part fails.
pub async fn direct_upload_fails(guard: GuardState) -> ScenarioResult {
    let context =
        without_requeue(guard, GuardTestPlan { announce: false, put_bytes_max: 2, ..GuardTestPlan::default() }).await;
    let flaky = &context.backend.flaky;
    flaky.fail_call(flaky.calls() + 3, Fault::Before);
    context.put("a", "first").await.expect_err("a part failed");
    (context, vec![])
}

/// No intent names the write, and its bytes are stored after cleanup probed the key.
pub async fn direct_write_takes_effect_late(guard: GuardState) -> ScenarioResult {
    let context = without_requeue(guard, GuardTestPlan { announce: false, ..GuardTestPlan::default() }).await;
    context.backend.loses_writes.store(true, Ordering::Relaxed);
    context.put("a", "first").await.expect_err("no answer");
    context.harness.clean_after(Duration::from_mins(10)).await;
    context.backend.store_late();
    (context, vec![])
}

/// Another disk is mounted while a delete is queued for the right one.
pub async fn disk_is_swapped(guard: GuardState) -> ScenarioResult {
    let identity_age = if guard.is_off() { AGE } else { Duration::ZERO };
    let context = GuardContext::new(GuardTestPlan { identity_age, ..GuardTestPlan::default() }).await;
    context.put("a", "first").await.expect("stored");
    context.harness.delete("a").await;
    context.backend.swapped.store(true, Ordering::Relaxed);
    context.harness.clean_after(Duration::from_mins(1)).await;
    context.backend.swapped.store(false, Ordering::Relaxed);
    assert!(context.harness.process.identity.attach().await, "the right disk is back");
    (context, vec![])
}

pub async fn outage(guard: GuardState) -> ScenarioResult {
    let flaws = BackendFlaws { away_is_refused: guard.is_off(), ..BackendFlaws::default() };
    let context = GuardContext::new(GuardTestPlan { flaws, identity_age: AGE, ..GuardTestPlan::default() }).await;
    context.put("a", "first").await.expect("stored");
    context.harness.delete("a").await;
    context.backend.flaky.go_away();
    for _ in 0..20 {
        context.harness.clean_after(Duration::from_mins(10)).await;
    }
    let dead = context.harness.texts("SELECT physical_key FROM cleanup_dlq").await;
    (context, if dead.is_empty() { vec![] } else { vec![DEAD_LETTER] })
}

/// The commit happened and its answer was lost; without the guard the bytes are deleted.
pub async fn commit_answer_is_lost(guard: GuardState) -> ScenarioResult {
    let context = GuardContext::new(GuardTestPlan::default()).await;
    let memory = Arc::clone(&context.backend.memory);
    let meanwhile = async move {
        let keys = memory.keys().into_iter().filter(|key| guard.is_off() && !key.starts_with(".s3o/"));
        keys.for_each(|key| memory.corrupt(&key, None));
    };
    context.driver.inject("commit_put", UnitFault::LoseAnswer(Box::pin(meanwhile)));
    context.put("a", "first").await.expect("the engine finds the commit");
    (context, vec![])
}

/// The commit did not happen, and `pending_reaper` abandoned the write before the writer queries the outcome.
pub async fn write_was_abandoned(guard: GuardState) -> ScenarioResult {
    let context = GuardContext::new(GuardTestPlan::default()).await;
    if guard.is_off() {
        context.driver.inject("stage", UnitFault::Add(millis_of(LEASE)));
    }
    let (catalog, clock) = (Arc::clone(&context.harness.catalog), Arc::clone(&context.harness.clock));
    let meanwhile = async move {
        clock.advance(LEASE);
        let token: ClaimToken = "00000000000000000000000000000001".parse().expect("a token");
        for intent in catalog.claim_expired(token, 9, LEASE).await.expect("claimed") {
            assert!(catalog.abandon(token, intent.write, LATE).await.expect("abandoned"));
        }
    };
    context.driver.inject("commit_put", UnitFault::LoseUnit(Box::pin(meanwhile)));
    let answer = context.put("a", "first").await;
    (context, if answer.is_ok() { vec![FALSE_ANSWER] } else { vec![] })
}

/// The MD5 of `first`.
const FIRST: [u8; 16] =
    [0x8b, 0x04, 0xd5, 0xe3, 0x77, 0x5d, 0x29, 0x8e, 0x78, 0x45, 0x5e, 0xfc, 0x5c, 0xa4, 0x04, 0xd5];

/// A write without a commit has other bytes of the same length than its client declared.
pub async fn wrong_bytes_were_stored(guard: GuardState) -> ScenarioResult {
    let context = GuardContext::new(GuardTestPlan::default()).await;
    fail_commit_and_compensation(&context);
    let digests = DeclaredDigests { md5: Some(Md5(FIRST)), ..DeclaredDigests::default() };
    let declared = Declared { digests, ..Declared::default() };
    context.put_declared("a", "first", declared).await.expect_err("not committed");
    for key in context.harness.texts("SELECT physical_key FROM pending_objects").await {
        context.backend.memory.corrupt(&key, Some(Bytes::from_static(b"other")));
    }
    if guard.is_off() {
        let mut unit = Unit::new("remove_digest");
        unit.run("UPDATE pending_objects SET draft = json_remove(draft, '$.declared.md5')", vec![]);
        context.driver.inner.write(unit).await.expect("removed");
    }
    context.harness.reap_after(LEASE).await;
    let visible = context.harness.texts("SELECT key FROM objects").await;
    (context, if visible.is_empty() { vec![] } else { vec![WRONG_BYTES] })
}
