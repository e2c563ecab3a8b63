//! What is played, with a safety in place and without it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::layers::Fault;
use s3o_catalog::Intents as _;
use s3o_catalog::unit::Unit;
use s3o_engine::Declared;
use s3o_model::clock::millis_of;
use s3o_model::etag::Md5;
use s3o_model::ids::ClaimToken;
use s3o_model::intent::DeclaredDigests;

use crate::bent::Bend;
use crate::house::{House, LATE, LEASE, Plan};
use crate::misled::Trick;
use crate::{FALSE_ANSWER, GIVEN_UP, Safety, WRONG_BYTES};

type Played = (House, Vec<&'static str>);

const AGE: Duration = Duration::from_hours(24 * 1000);

async fn storing_by_name(safety: Safety) -> House {
    House::new(Plan { bend: Bend { by_name: safety.is_off(), ..Bend::default() }, ..Plan::default() }).await
}

pub async fn a_delete_waits_while_its_key_is_written_again(safety: Safety) -> Played {
    let house = storing_by_name(safety).await;
    house.put("a", "first").await.expect("stored");
    house.delete("a").await;
    house.put("a", "second").await.expect("stored");
    (house, vec![])
}

pub async fn a_failed_overwrite(safety: Safety) -> Played {
    let house = storing_by_name(safety).await;
    house.put("a", "first").await.expect("stored");
    house.misled.mislead("commit_put", Trick::Fail);
    house.put("a", "second").await.expect_err("not committed");
    (house, vec![])
}

/// The catalog goes away between the bytes and their commit, and the process dies before it is back.
fn dying(house: &House) {
    for unit in ["commit_put", "drop_write", "requeue"] {
        house.misled.mislead(unit, Trick::Fail);
    }
}

pub async fn a_crash_before_the_commit(safety: Safety) -> Played {
    let house = House::new(Plan { announce: !safety.is_off(), ..Plan::default() }).await;
    dying(&house);
    house.put("a", "first").await.expect_err("not committed");
    (house, vec![])
}

/// The answer to a write is lost, its bytes are there; when cleanup looks, the store answers with somebody else's 404.
pub async fn a_store_that_says_nothing(safety: Safety) -> Played {
    let bend = Bend { unknown_is_absent: safety.is_off(), ..Bend::default() };
    let house = House::new(Plan { bend, ..Plan::default() }).await;
    let flaky = Arc::clone(&house.bent.flaky);
    flaky.fail_call(flaky.calls() + 1, Fault::After);
    house.put("a", "first").await.expect_err("no answer");
    // The identity is read, then the key is probed, then, if anybody dares, deleted.
    flaky.fail_call(flaky.calls() + 2, Fault::Wrong404);
    flaky.fail_call(flaky.calls() + 3, Fault::Before);
    house.clean_after(LATE).await;
    (house, vec![])
}

pub async fn a_write_lands_late(safety: Safety) -> Played {
    let late_write_window = if safety.is_off() { Duration::ZERO } else { LATE };
    let house = House::new(Plan { late_write_window, ..Plan::default() }).await;
    house.bent.loses_writes.store(true, Ordering::Relaxed);
    house.put("a", "first").await.expect_err("no answer");
    house.clean_after(Duration::from_mins(10)).await;
    house.bent.land();
    (house, vec![])
}

/// A house that forgets to queue bytes again if the safety is off.
async fn requeueing(safety: Safety, plan: Plan) -> House {
    let house = House::new(plan).await;
    if safety.is_off() {
        house.misled.mislead("requeue", Trick::Forget);
    }
    house
}

/// A write takes so long that its cleanup has looked for it for the last time when it goes on; it fails in the end.
async fn overtaken(house: &House) {
    house.bent.holds_writes.store(true, Ordering::Relaxed);
    let meanwhile = async {
        house.bent.arrived.acquire().await.expect("never closed").forget();
        house.reap_after(LEASE).await;
        house.clean_after(LATE).await;
        house.bent.gate.add_permits(1);
    };
    let (put, ()) = tokio::join!(house.put("a", "first"), meanwhile);
    put.expect_err("fenced");
}

pub async fn a_slow_write_is_overtaken(safety: Safety) -> Played {
    let house = requeueing(safety, Plan::default()).await;
    overtaken(&house).await;
    (house, vec![])
}

/// The bytes land, and the answer that says so is lost.
pub async fn a_slow_write_has_no_answer(safety: Safety) -> Played {
    let house = requeueing(safety, Plan::default()).await;
    let flaky = &house.bent.flaky;
    // The identity is read before cleanup looks, the key is probed and deleted; then the write goes on.
    flaky.fail_call(flaky.calls() + 4, Fault::After);
    overtaken(&house).await;
    assert!(house.bent.flaky.log().iter().any(|call| call.operation == "put" && call.fault.is_some()));
    (house, vec![])
}

/// The write is done, and the catalog does not answer whether it was committed.
pub async fn a_slow_write_asks_in_vain(safety: Safety) -> Played {
    let house = requeueing(safety, Plan::default()).await;
    house.misled.mislead("commit_put", Trick::LoseUnit(Box::pin(async {})));
    overtaken(&house).await;
    (house, vec![])
}

/// The write is done, and the catalog is away.
pub async fn a_slow_write_is_refused(safety: Safety) -> Played {
    let house = requeueing(safety, Plan::default()).await;
    house.misled.mislead("commit_put", Trick::Fail);
    overtaken(&house).await;
    (house, vec![])
}

pub async fn a_slow_upload_begins(safety: Safety) -> Played {
    let house = requeueing(safety, Plan { put_bytes_max: 2, ..Plan::default() }).await;
    overtaken(&house).await;
    (house, vec![])
}

/// Nobody knows of the write, and its second part fails.
pub async fn an_unannounced_upload_breaks(safety: Safety) -> Played {
    let house = requeueing(safety, Plan { announce: false, put_bytes_max: 2, ..Plan::default() }).await;
    let flaky = &house.bent.flaky;
    flaky.fail_call(flaky.calls() + 3, Fault::Before);
    house.put("a", "first").await.expect_err("broken");
    (house, vec![])
}

/// Nobody knows of the write, and its bytes land after cleanup has looked.
pub async fn an_unannounced_write_lands_late(safety: Safety) -> Played {
    let house = requeueing(safety, Plan { announce: false, ..Plan::default() }).await;
    house.bent.loses_writes.store(true, Ordering::Relaxed);
    house.put("a", "first").await.expect_err("no answer");
    house.clean_after(Duration::from_mins(10)).await;
    house.bent.land();
    (house, vec![])
}

/// Another disk is mounted while something is to be deleted on the right one.
pub async fn a_disk_is_swapped(safety: Safety) -> Played {
    let identity_age = if safety.is_off() { AGE } else { Duration::ZERO };
    let house = House::new(Plan { identity_age, ..Plan::default() }).await;
    house.put("a", "first").await.expect("stored");
    house.delete("a").await;
    house.bent.swapped.store(true, Ordering::Relaxed);
    house.clean_after(Duration::from_mins(1)).await;
    house.bent.swapped.store(false, Ordering::Relaxed);
    assert!(house.identity.attach().await, "the right disk is back");
    (house, vec![])
}

pub async fn an_outage(safety: Safety) -> Played {
    let bend = Bend { away_is_refused: safety.is_off(), ..Bend::default() };
    let house = House::new(Plan { bend, identity_age: AGE, ..Plan::default() }).await;
    house.put("a", "first").await.expect("stored");
    house.delete("a").await;
    house.bent.flaky.go_away();
    for _ in 0..20 {
        house.clean_after(Duration::from_mins(10)).await;
    }
    let dead = house.texts("SELECT physical_key FROM cleanup_dlq").await;
    (house, if dead.is_empty() { vec![] } else { vec![GIVEN_UP] })
}

/// The commit happened, and its answer was lost; some would now delete the bytes of a write that failed.
pub async fn a_lost_answer_to_a_commit(safety: Safety) -> Played {
    let house = House::new(Plan::default()).await;
    let memory = Arc::clone(&house.bent.memory);
    let meanwhile = async move {
        let keys = memory.keys().into_iter().filter(|key| safety.is_off() && !key.starts_with(".s3o/"));
        keys.for_each(|key| memory.corrupt(&key, None));
    };
    house.misled.mislead("commit_put", Trick::LoseAnswer(Box::pin(meanwhile)));
    house.put("a", "first").await.expect("it was committed, and that was found out");
    (house, vec![])
}

/// The commit did not happen, and by the time its owner asks, the reaper has given the write up.
pub async fn a_write_that_was_given_up(safety: Safety) -> Played {
    let house = House::new(Plan::default()).await;
    if safety.is_off() {
        house.misled.mislead("stage", Trick::Add(millis_of(LEASE)));
    }
    let (catalog, clock) = (Arc::clone(&house.catalog), Arc::clone(&house.clock));
    let meanwhile = async move {
        clock.advance(LEASE);
        let token: ClaimToken = "00000000000000000000000000000001".parse().expect("a token");
        for intent in catalog.claim_expired(token, 9, LEASE).await.expect("claimed") {
            assert!(catalog.abandon(token, intent.write, LATE).await.expect("given up"));
        }
    };
    house.misled.mislead("commit_put", Trick::LoseUnit(Box::pin(meanwhile)));
    let answer = house.put("a", "first").await;
    (house, if answer.is_ok() { vec![FALSE_ANSWER] } else { vec![] })
}

/// The MD5 of `first`.
const FIRST: [u8; 16] =
    [0x8b, 0x04, 0xd5, 0xe3, 0x77, 0x5d, 0x29, 0x8e, 0x78, 0x45, 0x5e, 0xfc, 0x5c, 0xa4, 0x04, 0xd5];

/// A write was left with other bytes of the same length than its sender declared.
pub async fn the_wrong_bytes_arrived(safety: Safety) -> Played {
    let house = House::new(Plan::default()).await;
    dying(&house);
    let digests = DeclaredDigests { md5: Some(Md5(FIRST)), ..DeclaredDigests::default() };
    let declared = Declared { digests, ..Declared::default() };
    house.put_declared("a", "first", declared).await.expect_err("not committed");
    for key in house.texts("SELECT physical_key FROM pending_objects").await {
        house.bent.memory.corrupt(&key, Some(Bytes::from_static(b"other")));
    }
    if safety.is_off() {
        let mut unit = Unit::new("forget");
        unit.run("UPDATE pending_objects SET draft = json_remove(draft, '$.declared.md5')", vec![]);
        house.misled.inner.write(unit).await.expect("forgotten");
    }
    house.reap_after(LEASE).await;
    let shown = house.texts("SELECT key FROM objects").await;
    (house, if shown.is_empty() { vec![] } else { vec![WRONG_BYTES] })
}
