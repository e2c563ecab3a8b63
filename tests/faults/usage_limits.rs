//! What a reached usage limit stops, and what continues.

use std::time::Duration;

use s3o_backend::layers::Fault;
use s3o_catalog::Mode;
use s3o_engine::Error;
use s3o_model::usage::{UsageKind, UsageLimits, UsagePolicy, UsageTotals};
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Expected, Harness, get};

const BODY: &[u8] = b"a body on two of three backends";

/// Three backends; each object has two copies.
async fn harness() -> Harness {
    Harness::with_bucket(Environment::new(1 << 20).with_copies(2, 1 << 20), Mode::Inline).await
}

/// Sets the limits of a backend and obtains ceilings.
async fn limit(harness: &Harness, name: &str, limits: UsageTotals) {
    let usage = harness.process.fleet.usage(&name.parse().expect("valid")).expect("a counted backend");
    usage.set_policy(UsagePolicy { limits: UsageLimits::new(limits), ..UsagePolicy::default() });
    harness.process.usage.start().await.expect("ceilings");
}

/// A limit that the attach of the backend has reached or nearly reached.
const fn requests(requests: u64) -> UsageTotals {
    UsageTotals { requests, egress_bytes: 0, ingress_bytes: 0 }
}

const fn ingress(ingress_bytes: u64) -> UsageTotals {
    UsageTotals { requests: 0, egress_bytes: 0, ingress_bytes }
}

async fn backends_of_copies(harness: &Harness) -> Vec<String> {
    harness.texts("SELECT backend_name FROM object_locations ORDER BY backend_name").await
}

fn reached(outcome: Result<impl Sized, Error>) -> (String, UsageKind) {
    match outcome {
        Err(Error::LimitReached(limit)) => (limit.backend.to_string(), limit.kind),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the request succeeded"),
    }
}

#[tokio::test]
async fn writes_use_backends_within_their_limits() {
    let harness = harness().await;
    harness.store("first", BODY).await.expect("stored");
    limit(&harness, "memory", requests(1)).await;
    harness.store("a", BODY).await.expect("stored");
    harness.delete("first").await;
    harness.settle().await;
    assert_eq!(backends_of_copies(&harness).await, ["second", "third"]);
    assert_eq!(harness.read("a").await.as_deref(), Some(BODY));
}

#[tokio::test]
async fn body_that_exceeds_what_is_left_is_stored_elsewhere_or_refused() {
    let harness = harness().await;
    limit(&harness, "memory", ingress(40)).await;
    harness.store("a", BODY).await.expect("stored");
    assert_eq!(backends_of_copies(&harness).await, ["second", "third"], "half of the limit is the share");
    for name in ["second", "third"] {
        limit(&harness, name, ingress(20)).await;
    }
    let (backend, kind) = reached(harness.store("b", BODY).await);
    assert_eq!(kind, UsageKind::Ingress, "{backend}");
    // The refused size was requested, and one copy is enough.
    harness.process.usage.start().await.expect("ceilings");
    harness.store("b", BODY).await.expect("stored");
    assert_eq!(harness.read("b").await.as_deref(), Some(BODY));
}

#[tokio::test]
async fn reads_use_copies_within_limits_and_are_refused_without_one() {
    let harness = harness().await;
    harness.store("a", BODY).await.expect("stored");
    let [first, second] = &backends_of_copies(&harness).await[..] else { panic!("two copies") };
    limit(&harness, first, requests(1)).await;
    assert_eq!(harness.read("a").await.as_deref(), Some(BODY));
    limit(&harness, second, requests(1)).await;
    let (backend, kind) = reached(harness.engine.get_object(get("a")).await);
    assert!([first, second].contains(&&backend) && kind == UsageKind::Requests);
    limit(&harness, second, ingress(1)).await;
    assert_eq!(harness.read("a").await.as_deref(), Some(BODY), "reads need no ingress");
}

#[tokio::test]
async fn suspect_copy_does_not_replace_one_beyond_its_limit() {
    let harness = harness().await;
    harness.store("a", BODY).await.expect("stored");
    let [first, _] = &backends_of_copies(&harness).await[..] else { panic!("two copies") };
    let suspect = "UPDATE object_locations SET state = 'suspect' \
                   WHERE backend_name = (SELECT max(backend_name) FROM object_locations)";
    harness.change(suspect).await;
    limit(&harness, first, requests(1)).await;
    assert_eq!(reached(harness.engine.get_object(get("a")).await), (first.clone(), UsageKind::Requests));
}

#[tokio::test]
async fn deletes_continue_beyond_every_limit() {
    let harness = harness().await;
    harness.store("a", BODY).await.expect("stored");
    for name in ["memory", "second", "third"] {
        limit(&harness, name, requests(1)).await;
    }
    harness.delete("a").await;
    harness.settle().await;
    harness.check_settled().await;
    assert_eq!(harness.environment.backends.iter().map(|backend| backend.memory.total_bytes()).sum::<u64>(), 0);
}

#[tokio::test]
async fn copies_wait_near_a_limit() {
    let harness = harness().await;
    harness.store("a", BODY).await.expect("stored");
    harness.catalog.set_factors(3, &[]).await.expect("stored");
    let third = ["memory", "second", "third"].map(str::to_owned);
    let copies = backends_of_copies(&harness).await;
    let free = third.iter().find(|name| !copies.contains(name)).expect("a backend without a copy");
    // 100 bytes are left, but 81 of 100 percent are used.
    limit(&harness, free, ingress(1000)).await;
    let usage = harness.process.fleet.usage(&free.parse().expect("valid")).expect("counted");
    usage.counters().add_sent(810);
    let report = harness.tick_after(harness.process.worker("replicator"), Duration::ZERO).await;
    assert_eq!(report.items.get("copied"), None, "{report:?}");
    limit(&harness, free, ingress(2000)).await;
    harness.settle().await;
    assert_eq!(backends_of_copies(&harness).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn backend_upload_that_began_within_the_limit_is_finished_beyond_it() {
    let harness = Harness::with_bucket(Environment::new(8), Mode::Inline).await;
    harness.flaky.fail_call(harness.flaky.calls() + 2, Fault::Delay(Duration::from_secs(2)));
    let exceed = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        limit(&harness, "memory", requests(1)).await;
        assert_eq!(reached(harness.store("b", BODY).await).1, UsageKind::Requests);
    };
    let (stored, ()) = tokio::join!(harness.store("a", BODY), exceed);
    stored.expect("parts are sent, and the upload is finished");
    limit(&harness, "memory", requests(0)).await;
    harness.check(&Expected::from([("a", vec![Some(BODY.to_vec())]), ("b", vec![None])])).await;
}

#[tokio::test]
async fn content_whose_copy_may_not_be_probed_is_not_joined() {
    let environment = Environment::new(1 << 20).with_dedup(true).with_backend("second", 1 << 20, None);
    let harness = Harness::with_bucket(environment, Mode::Inline).await;
    harness.store("a", BODY).await.expect("stored");
    limit(&harness, "memory", requests(1)).await;
    harness.store("b", BODY).await.expect("stored");
    assert_eq!(backends_of_copies(&harness).await, ["memory", "second"]);
    limit(&harness, "memory", requests(0)).await;
    harness.store("c", BODY).await.expect("stored");
    assert_eq!(backends_of_copies(&harness).await, ["memory", "second"], "the content is joined again");
}
