//! Tests of the delete delay after an attach and of contested marks.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::identity::{IDENTITY_KEY, Identity as Carried};
use s3o_backend::layers::{Fault, FaultPlan, Flaky};
use s3o_catalog::MARK_LEASE;
use s3o_catalog::conformance::fixture::Fixture;
use s3o_model::clock::{Clock as _, Timestamp};

use super::super::IdentitySettings;
use super::{Instance, MINUTE, ReadOnlyStore, carried, disk, known, memory, raise};
use crate::testing::fixture;

#[tokio::test]
async fn deletes_start_after_the_delay_if_the_mark_is_still_current() {
    let (fixture, store) = (fixture(), memory());
    assert!(Instance::attached(&fixture, "a", &store).await.deletes().await, "a fresh backend has no delay");
    let settings = IdentitySettings {
        max_age: HashMap::from([(disk(), Duration::from_hours(1))]),
        delete_delay: HashMap::from([(disk(), 2 * MINUTE)]),
        ..IdentitySettings::default()
    };
    let started = Instance::with(&fixture, "a", vec![store.clone()], settings);
    assert!(started.identity.attach().await);
    assert!(!started.deletes().await);
    assert!(started.identity.permits(started.backend()).await.expect("compared"), "reads are not delayed");
    fixture.clock.advance(MINUTE);
    assert!(!started.deletes().await);
    // Another catalog writes its own mark during the delay: the check of the attach no longer counts.
    let unexpected = Carried { mark: "unknown".to_owned(), sequence: 9, ..carried(&store) };
    store.plant(IDENTITY_KEY, unexpected.encode());
    fixture.clock.advance(MINUTE);
    assert!(!started.deletes().await);
    assert!(started.frozen().is_some());
}

/// An operator sets the clock back by an hour.
fn set_back(fixture: &Fixture) {
    fixture.clock.set(Timestamp::from_millis(fixture.clock.now().millis() - 3_600_000));
}

#[tokio::test]
async fn clock_set_back_neither_delays_deletes_nor_extends_checks() {
    let (fixture, store) = (fixture(), memory());
    Instance::attached(&fixture, "a", &store).await;
    let settings = IdentitySettings {
        max_age: HashMap::from([(disk(), MINUTE)]),
        delete_delay: HashMap::from([(disk(), 2 * MINUTE)]),
        ..IdentitySettings::default()
    };
    let started = Instance::with(&fixture, "a", vec![store.clone()], settings);
    assert!(started.identity.attach().await);
    set_back(&fixture);
    fixture.clock.advance(2 * MINUTE);
    assert!(started.deletes().await, "two minutes have passed");
    set_back(&fixture);
    let unexpected = Carried { mark: "unknown".to_owned(), sequence: 9, ..carried(&store) };
    store.plant(IDENTITY_KEY, unexpected.encode());
    fixture.clock.advance(MINUTE);
    assert!(!started.deletes().await, "the last check is a minute old");
}

#[tokio::test]
async fn deletes_wait_for_a_raise_if_the_attach_made_none() {
    let (fixture, store) = (fixture(), memory());
    let first = Instance::attached(&fixture, "a", &store).await;
    let started = |host| {
        let settings = IdentitySettings {
            delete_delay: HashMap::from([(disk(), MINUTE)]),
            raise_age: 5 * MINUTE,
            ..IdentitySettings::default()
        };
        Instance::with(&fixture, host, vec![store.clone()], settings)
    };
    let second = started("b");
    assert!(second.identity.attach().await);
    fixture.clock.advance(2 * MINUTE);
    assert_eq!(carried(&store).sequence, 1);
    assert!(!second.deletes().await, "a copy of the catalog may know this mark");

    // The raise of any instance counts, and the delay begins with it.
    raise(&first).await;
    assert!(!second.deletes().await);
    fixture.clock.advance(MINUTE);
    assert!(second.deletes().await);

    // An instance that waits raises the mark itself once it is old enough.
    let third = started("c");
    assert!(third.identity.attach().await);
    fixture.clock.advance(5 * MINUTE);
    assert!(!third.deletes().await && carried(&store).sequence == 3);
    fixture.clock.advance(MINUTE);
    assert!(third.deletes().await);
}

#[tokio::test]
async fn contesting_a_mark_is_retried_until_it_succeeds() {
    let (one, store) = (fixture(), memory());
    let flaky = Arc::new(Flaky::new(store.clone()));
    let first = Instance::new(&one, "a", vec![flaky.clone()]);
    assert!(first.identity.attach().await);
    let unexpected = Carried { mark: "unknown".to_owned(), sequence: 9, ..carried(&store) };
    store.plant(IDENTITY_KEY, unexpected.encode());
    flaky.set_fault_plan(Some(Arc::new(ReadOnlyStore)));
    assert!(!first.deletes().await && !carried(&store).contested);
    flaky.set_fault_plan(None);
    assert!(first.identity.attach().await);
    assert!(carried(&store).contested);
}

#[tokio::test]
async fn accept_is_refused_before_other_instances_could_answer() {
    let (fixture, store) = (fixture(), memory());
    Instance::attached(&fixture, "a", &store).await;
    let settings = IdentitySettings { answer_wait: Duration::from_secs(10), ..IdentitySettings::default() };
    let wrong = Instance::with(&fixture, "b", vec![memory()], settings);
    assert!(wrong.identity.attach().await);
    let hash = wrong.shown(None).await.expect("shown").hash;
    assert!(wrong.shown(Some(&hash)).await.is_some(), "refused");
    fixture.clock.advance(Duration::from_secs(10));
    assert!(wrong.shown(Some(&hash)).await.is_none(), "accepted");
}

#[tokio::test]
async fn attach_does_not_raise_a_recently_confirmed_mark() {
    let (fixture, store) = (fixture(), memory());
    Instance::attached(&fixture, "a", &store).await;
    let settings = || IdentitySettings { raise_age: 5 * MINUTE, ..IdentitySettings::default() };
    for (wait, sequence) in [(MINUTE, 1), (5 * MINUTE, 2)] {
        fixture.clock.advance(wait);
        assert!(Instance::with(&fixture, "b", vec![store.clone()], settings()).identity.attach().await);
        assert_eq!(carried(&store).sequence, sequence);
    }
}

/// Delays every write of the identity object.
struct SlowIdentity;

impl FaultPlan for SlowIdentity {
    fn next_fault(&self, operation: &'static str, key: &str) -> Option<Fault> {
        (operation == "write_own" && key == IDENTITY_KEY).then_some(Fault::Delay(Duration::from_secs(1)))
    }
}

/// The process is suspended while it writes a mark, for longer than the lease of its plan, and another instance
/// confirms that mark and the next one meanwhile.
#[tokio::test(start_paused = true)]
async fn instance_that_was_suspended_during_a_raise_confirms_no_old_mark() {
    let (fixture, store) = (fixture(), memory());
    let flaky = Arc::new(Flaky::new(store.clone()));
    let suspended = Instance::new(&fixture, "a", vec![flaky.clone()]);
    assert!(suspended.identity.attach().await);
    let other = Instance::attached(&fixture, "b", &store).await;
    flaky.set_fault_plan(Some(Arc::new(SlowIdentity)));
    let mut raised = pin!(suspended.identity.raise(suspended.backend()));
    tokio::time::timeout(Duration::from_millis(1), &mut raised).await.expect_err("the store has not answered");
    let planned = known(&fixture).await.next_mark.expect("a planned mark");
    // Nothing of the suspended process runs until it is polled again.
    fixture.clock.advance(2 * MARK_LEASE);
    tokio::time::advance(2 * MARK_LEASE).await;
    raise(&other).await;
    let between = known(&fixture).await;
    assert!(between.past_marks.contains(&planned), "the other instance finished the open raise");
    flaky.set_fault_plan(None);
    // It may give up; what it wrote is judged below.
    raised.await.unwrap_or_default();
    for instance in [&suspended, &other] {
        assert!(instance.deletes().await);
        assert_eq!(instance.frozen(), None);
    }
    let after = known(&fixture).await;
    assert!(after.mark_sequence >= between.mark_sequence && after.mark.as_ref() != Some(&planned));
    assert_eq!((Some(carried(&store).mark), carried(&store).sequence), (after.mark, after.mark_sequence));
}
