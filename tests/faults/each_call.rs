//! Each backend call of each operation, and of the clean-up behind it, fails in turn.

use futures_util::StreamExt as _;
use s3o_backend::layers::Fault;
use s3o_catalog::Mode;

use s3o_tests::house::{Ground, House, get};
use s3o_tests::scenarios::{Scenario, WITHOUT_BACKEND, all, either};

const FAULTS: [Fault; 5] = [Fault::Before, Fault::After, Fault::Cut(3), Fault::PartialBatch, Fault::Wrong404];

/// The first and the last backend call of the operation and everything behind it.
async fn healthy(scenario: &Scenario) -> (u64, u64) {
    let house = prepared(scenario).await;
    let start = house.flaky.calls();
    (scenario.act)(&house).await.unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
    house.settle().await;
    let last = house.flaky.calls();
    house.check(&(scenario.after)()).await;
    (start + 1, last)
}

async fn prepared(scenario: &Scenario) -> House {
    let ground = Ground::new(scenario.put_bytes_max).with_dedup(scenario.dedup);
    let house = House::with_bucket(&ground, Mode::Inline).await;
    (scenario.prepare)(&house).await.expect("prepared");
    house
}

async fn with_fault(scenario: &Scenario, call: u64, fault: Fault) {
    let house = prepared(scenario).await;
    house.flaky.fail_call(call, fault);
    let outcome = (scenario.act)(&house).await;
    let expected = if outcome.is_ok() { (scenario.after)() } else { either(scenario) };
    house.settle().await;
    let struck = house.flaky.log().into_iter().any(|made| made.number == call && made.fault == Some(fault));
    assert!(struck, "{}: call {call} was not made, or {fault:?} was not injected", scenario.name);
    house.check(&expected).await;
}

#[tokio::test]
async fn any_backend_call_may_fail_in_any_way() {
    let mut runs = 0;
    for scenario in all() {
        let (first, last) = healthy(scenario).await;
        println!("{}: backend calls {first} to {last}, {} faults each", scenario.name, FAULTS.len());
        assert!(last >= first || WITHOUT_BACKEND.contains(&scenario.name), "{} reached no backend", scenario.name);
        for call in first..=last {
            for fault in FAULTS {
                with_fault(scenario, call, fault).await;
                runs += 1;
            }
        }
    }
    println!("{runs} runs");
    assert!(runs > 100);
}

#[tokio::test]
async fn a_backend_that_is_away_loses_nothing_and_drains_when_it_is_back() {
    for scenario in all() {
        let house = prepared(scenario).await;
        house.flaky.go_away();
        let outcome = (scenario.act)(&house).await;
        let expected = if outcome.is_ok() { (scenario.after)() } else { either(scenario) };
        house.flaky.come_back();
        house.check(&expected).await;
    }
}

#[tokio::test]
async fn a_read_that_breaks_never_ends_cleanly() {
    let house = House::new(u64::MAX, Mode::Inline).await;
    let client = std::sync::Arc::new(());
    house.engine.put_object(house.put("a", b"eleven byte", &client)).await.expect("stored");
    let mut opened_at_all = 0;
    for fault in [Fault::Before, Fault::After, Fault::Cut(0), Fault::Cut(5), Fault::Wrong404] {
        house.flaky.fail_call(house.flaky.calls() + 1, fault);
        let Ok(mut opened) = house.engine.get_object(get("a")).await else { continue };
        opened_at_all += 1;
        let mut received = 0;
        let mut broke = false;
        while let Some(chunk) = opened.body.next().await {
            match chunk {
                Ok(chunk) => received += chunk.len(),
                Err(_) => broke = true,
            }
        }
        assert!(broke, "{fault:?}: {received} bytes and then a clean end");
        assert!(received < 11);
    }
    assert!(opened_at_all > 0, "no read broke half way");
    assert_eq!(house.read("a").await.as_deref(), Some(b"eleven byte".as_slice()));
}
