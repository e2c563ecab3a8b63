//! Each backend call of each operation, and of the workers after it, fails in turn.

use futures_util::StreamExt as _;
use s3o_backend::layers::Fault;
use s3o_catalog::Mode;

use s3o_tests::harness::{Harness, get};
use s3o_tests::scenarios::{Scenario, WITHOUT_BACKEND, all, either};

const FAULTS: [Fault; 5] = [Fault::Before, Fault::After, Fault::Cut(3), Fault::PartialBatch, Fault::Wrong404];

/// Numbers of the first and the last backend call of the operation and of the workers after it.
async fn calls_without_fault(scenario: &Scenario) -> (u64, u64) {
    let harness = prepared(scenario).await;
    let start = harness.flaky.calls();
    (scenario.act)(&harness).await.unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
    harness.settle().await;
    let last = harness.flaky.calls();
    harness.check(&(scenario.after)()).await;
    (start + 1, last)
}

async fn prepared(scenario: &Scenario) -> Harness {
    let harness = Harness::with_bucket(scenario.environment(), Mode::Inline).await;
    (scenario.prepare)(&harness).await.expect("prepared");
    harness
}

async fn with_fault(scenario: &Scenario, call: u64, fault: Fault) {
    let harness = prepared(scenario).await;
    harness.flaky.fail_call(call, fault);
    let outcome = (scenario.act)(&harness).await;
    let expected = if outcome.is_ok() { (scenario.after)() } else { either(scenario) };
    harness.settle().await;
    let injected = harness.flaky.log().into_iter().any(|made| made.number == call && made.fault == Some(fault));
    assert!(injected, "{}: call {call} was not made, or {fault:?} was not injected", scenario.name);
    harness.check(&expected).await;
}

#[tokio::test]
async fn any_fault_at_any_backend_call_loses_nothing() {
    let mut runs = 0;
    for scenario in all() {
        let (first, last) = calls_without_fault(scenario).await;
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
async fn unreachable_backend_loses_nothing_and_drains_when_reachable() {
    for scenario in all() {
        let harness = prepared(scenario).await;
        harness.flaky.go_away();
        let outcome = (scenario.act)(&harness).await;
        let expected = if outcome.is_ok() { (scenario.after)() } else { either(scenario) };
        harness.flaky.come_back();
        harness.check(&expected).await;
    }
}

#[tokio::test]
async fn interrupted_read_never_ends_cleanly() {
    let harness = Harness::new(u64::MAX, Mode::Inline).await;
    let client = std::sync::Arc::new(());
    harness.engine.put_object(harness.put("a", b"eleven byte", &client)).await.expect("stored");
    let mut interrupted = 0;
    for fault in [Fault::Before, Fault::After, Fault::Cut(0), Fault::Cut(5), Fault::Wrong404] {
        harness.flaky.fail_call(harness.flaky.calls() + 1, fault);
        let Ok(mut opened) = harness.engine.get_object(get("a")).await else { continue };
        interrupted += 1;
        let mut received = 0;
        let mut broke = false;
        while let Some(chunk) = opened.body.next().await {
            match chunk {
                Ok(chunk) => received += chunk.len(),
                Err(_) => broke = true,
            }
        }
        assert!(broke, "{fault:?}: {received} bytes and a clean end");
        assert!(received < 11);
    }
    assert!(interrupted > 0, "no read was interrupted");
    assert_eq!(harness.read("a").await.as_deref(), Some(b"eleven byte".as_slice()));
}
