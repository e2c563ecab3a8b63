//! Tests of the views of the instances, which decide when a backend is unhealthy.

use std::time::Duration;

use s3o_model::ids::InstanceId;
use s3o_model::names::BackendName;

use super::fixture::{Fixture, backend};
use super::refused;
use crate::{SharedBackendState, UnhealthyRule, Verdict};

const MINUTE: Duration = Duration::from_mins(1);
const RULE: UnhealthyRule = UnhealthyRule { after: Duration::from_mins(10), answer_wait: Duration::from_secs(13) };
/// Less than the age at which a view no longer counts.
const STEP: Duration = Duration::from_secs(20);

/// Five attached backends.
async fn five(fixture: &Fixture) -> Vec<BackendName> {
    let mut names = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        names.push(fixture.attach(name, None).await);
    }
    names
}

async fn fails(fixture: &Fixture, author: InstanceId, name: &str, minutes: u64) {
    let failing = Some(MINUTE * u32::try_from(minutes).expect("small"));
    fixture.catalog.record_view(author, &backend(name), failing).await.expect("recorded");
}

async fn usable(fixture: &Fixture, author: InstanceId, name: &str) {
    fixture.catalog.record_view(author, &backend(name), None).await.expect("recorded");
}

async fn begin(fixture: &Fixture, name: &str, configured: &[BackendName]) -> Result<(), crate::Error> {
    fixture.catalog.begin_unhealthy(&backend(name), configured, RULE).await
}

async fn state(fixture: &Fixture, name: &str) -> SharedBackendState {
    let states = fixture.catalog.backend_states().await.expect("a query").into_iter();
    { states }.find(|state| state.name == backend(name)).expect("attached")
}

/// The copies on it do not count, and count again when it ends. Both start a review.
pub async fn unhealthy_backend_has_no_counting_copies(fixture: &Fixture) {
    let one = fixture.instance();
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let configured = ["disk", "east", "west"].map(backend);
    fails(fixture, one, "disk", 10).await;
    fixture.clock.advance(STEP);
    fails(fixture, one, "disk", 11).await;
    begin(fixture, "disk", &configured).await.expect("unhealthy");
    fixture.review().await;
    let lacking = fixture.copy_work(false).await;
    assert_eq!((lacking[0].content, lacking[0].counting()), (content, 0));
    assert_eq!(state(fixture, "disk").await.unhealthy_since, Some(fixture.now()));
    refused(begin(fixture, "disk", &configured).await, Verdict::NotNeeded);
    fixture.catalog.end_unhealthy(&backend("disk")).await.expect("ended");
    refused(fixture.catalog.end_unhealthy(&backend("disk")).await, Verdict::NotNeeded);
    fixture.review().await;
    assert_eq!(fixture.copy_work(false).await[0].counting(), 1);
    assert_eq!(state(fixture, "disk").await.unhealthy_since, None);
}

/// All recent views must have failed for long enough; one that is old says nothing.
pub async fn every_live_instance_must_have_failed_for_long_enough(fixture: &Fixture) {
    let (one, two) = (fixture.instance(), fixture.instance());
    let configured = five(fixture).await;
    refused(begin(fixture, "a", &configured).await, Verdict::NotNeeded);
    fails(fixture, one, "a", 20).await;
    usable(fixture, two, "a").await;
    fixture.clock.advance(STEP);
    fails(fixture, one, "a", 20).await;
    usable(fixture, two, "a").await;
    let seen = state(fixture, "a").await;
    assert_eq!((seen.failing_views, seen.usable_views, seen.failing_for), (1, 1, Some(20 * MINUTE)));
    refused(begin(fixture, "a", &configured).await, Verdict::NotNeeded);
    fails(fixture, two, "a", 9).await;
    refused(begin(fixture, "a", &configured).await, Verdict::NotNeeded);
    // The second instance ends, and its view becomes old.
    fixture.clock.advance(STEP);
    fails(fixture, one, "a", 21).await;
    refused(begin(fixture, "a", &configured).await, Verdict::NotNeeded);
    fixture.clock.advance(STEP);
    fails(fixture, one, "a", 21).await;
    begin(fixture, "a", &configured).await.expect("unhealthy");
}

/// An instance that probes seldom must have time to see that it can use the backend.
pub async fn other_instances_have_time_to_answer(fixture: &Fixture) {
    let one = fixture.instance();
    let configured = five(fixture).await;
    fails(fixture, one, "a", 20).await;
    refused(begin(fixture, "a", &configured).await, Verdict::NotNeeded);
    fixture.clock.advance(RULE.answer_wait);
    fails(fixture, one, "a", 20).await;
    begin(fixture, "a", &configured).await.expect("unhealthy");
    fails(fixture, one, "b", 20).await;
    usable(fixture, one, "b").await;
    fixture.clock.advance(RULE.answer_wait);
    fails(fixture, one, "b", 20).await;
    refused(begin(fixture, "b", &configured).await, Verdict::NotNeeded);
}

/// More than half of them: the fault is more likely the network of the instances.
pub async fn at_most_half_of_the_backends_become_unhealthy(fixture: &Fixture) {
    let (one, two) = (fixture.instance(), fixture.instance());
    let configured = five(fixture).await;
    for name in ["a", "b", "c"] {
        fails(fixture, one, name, 20).await;
    }
    fixture.clock.advance(STEP);
    for name in ["a", "b", "c"] {
        fails(fixture, one, name, 20).await;
    }
    refused(begin(fixture, "a", &configured).await, Verdict::NotNeeded);
    usable(fixture, two, "c").await;
    begin(fixture, "a", &configured).await.expect("two of five");
    begin(fixture, "b", &configured).await.expect("two of five");
    fixture.catalog.close_view(two, &backend("c")).await.expect("closed");
    refused(begin(fixture, "c", &configured).await, Verdict::NotNeeded);
}
