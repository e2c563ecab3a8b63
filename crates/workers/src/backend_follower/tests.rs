//! Tests of two instances that judge their backends together, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::layers::Flaky;
use s3o_backend::{Fleet, Memory, SharedBackend};
use s3o_catalog::conformance::fixture::Fixture;
use s3o_model::circuit::CircuitSettings;
use s3o_model::clock::Clock as _;
use s3o_model::entropy::SeededEntropy;
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;

use super::{BackendFollower, FOLLOW_INTERVAL};
use crate::testing::fixture;
use crate::{IdentityParts, IdentitySettings, IdentityWorker, ProbeIntervals, Prober};

const AFTER: Duration = Duration::from_mins(10);
/// Shorter than `AFTER` by one reading of the shared states.
const ALMOST: Duration = Duration::from_secs(10 * 60 - 4);
const SETTLING: Duration = Duration::from_secs(30);

/// Stores that all instances can reach, unless a test freezes one for an instance.
struct Stores(Vec<Arc<Flaky>>);

impl Stores {
    fn named(names: &[&str]) -> Self {
        let flaky = |name: &&str| Arc::new(Flaky::new(Arc::new(Memory::new(name.parse().expect("valid")))));
        Self(names.iter().map(flaky).collect())
    }

    async fn instance(&self, fixture: &Fixture, number: u64) -> BackendFollower {
        let catalog = Arc::new(fixture.catalog.clone());
        let stores = self.0.iter().map(|store| Arc::clone(store) as SharedBackend).collect();
        let fleet = Arc::new(Fleet::new(stores).expect("a fleet"));
        let identity = Arc::new(IdentityWorker::new(IdentityParts {
            identities: Arc::clone(&catalog),
            records: Arc::clone(&catalog),
            fleet: Arc::clone(&fleet),
            ids: IdSource::new(fixture.clock.clone(), Arc::new(SeededEntropy::new(number))),
            clock: fixture.clock.clone(),
            cluster: "ours".to_owned(),
            host: format!("host-{number}"),
            alarm: Arc::new(()),
            settings: IdentitySettings::default(),
        }));
        assert!(identity.attach().await);
        let prober = Arc::new(Prober {
            fleet: Arc::clone(&fleet),
            identity: Arc::clone(&identity),
            clock: fixture.clock.clone(),
            intervals: Shared::new(ProbeIntervals::new()),
        });
        let ids = IdSource::new(fixture.clock.clone(), Arc::new(SeededEntropy::new(100 + number)));
        BackendFollower {
            catalog,
            fleet,
            identity,
            prober,
            clock: fixture.clock.clone(),
            instance: InstanceId::new(ids.fresh()),
            unhealthy_after: Shared::new(AFTER),
            circuit: Shared::new(CircuitSettings { open_timeout: SETTLING, ..CircuitSettings::default() }),
            observations: parking_lot::Mutex::default(),
        }
    }
}

fn name(text: &str) -> BackendName {
    text.parse().expect("valid")
}

fn freeze(follower: &BackendFollower, backend: &str) {
    follower.fleet.set_frozen(&name(backend), Some("its store is unreachable".to_owned()));
}

fn thaw(follower: &BackendFollower, backend: &str) {
    follower.fleet.set_frozen(&name(backend), None);
}

/// Lets all instances follow for `time`.
async fn follow_for(fixture: &Fixture, followers: &[&BackendFollower], time: Duration) {
    let end = fixture.clock.since_boot() + time;
    while fixture.clock.since_boot() < end {
        for follower in followers {
            follower.follow().await.expect("followed");
        }
        fixture.clock.advance(FOLLOW_INTERVAL);
    }
}

async fn unhealthy(fixture: &Fixture) -> Vec<String> {
    let states = fixture.catalog.backend_states().await.expect("a query").into_iter();
    states.filter(|state| state.unhealthy_since.is_some()).map(|state| state.name.to_string()).collect()
}

async fn views(fixture: &Fixture) -> i64 {
    fixture.number("SELECT count(*) FROM backend_views").await
}

#[tokio::test]
async fn backend_that_one_instance_can_use_stays_healthy() {
    let (fixture, stores) = (fixture(), Stores::named(&["a", "b", "c"]));
    let (one, two) = (stores.instance(&fixture, 1).await, stores.instance(&fixture, 2).await);
    freeze(&one, "a");
    follow_for(&fixture, &[&one, &two], AFTER * 3).await;
    assert!(unhealthy(&fixture).await.is_empty());
    thaw(&one, "a");
    follow_for(&fixture, &[&one, &two], SETTLING * 2).await;
    assert_eq!(views(&fixture).await, 0, "no instance has trouble any more");
}

#[tokio::test]
async fn backend_that_no_instance_can_use_is_unhealthy_until_one_can() {
    let (fixture, stores) = (fixture(), Stores::named(&["a", "b", "c"]));
    let (one, two) = (stores.instance(&fixture, 1).await, stores.instance(&fixture, 2).await);
    freeze(&one, "a");
    follow_for(&fixture, &[&one, &two], AFTER / 2).await;
    freeze(&two, "a");
    follow_for(&fixture, &[&one, &two], ALMOST).await;
    assert!(unhealthy(&fixture).await.is_empty(), "the second instance has not failed for long enough");
    follow_for(&fixture, &[&one, &two], FOLLOW_INTERVAL * 3).await;
    assert_eq!(unhealthy(&fixture).await, ["a"]);
    one.follow().await.expect("followed");
    assert!(one.fleet.state(&name("a")).expect("known").unhealthy_since.is_some());
    thaw(&two, "a");
    follow_for(&fixture, &[&one, &two], SETTLING).await;
    assert_eq!(unhealthy(&fixture).await, ["a"], "it has not been usable for long enough");
    follow_for(&fixture, &[&one, &two], FOLLOW_INTERVAL * 3).await;
    assert!(unhealthy(&fixture).await.is_empty());
}

#[tokio::test]
async fn outage_counts_from_the_start_of_the_process() {
    let (fixture, stores) = (fixture(), Stores::named(&["a", "b", "c"]));
    let before = stores.instance(&fixture, 1).await;
    freeze(&before, "a");
    follow_for(&fixture, &[&before], ALMOST).await;
    drop(before);
    // A night without any instance.
    fixture.clock.advance(Duration::from_hours(9));
    let after = stores.instance(&fixture, 2).await;
    freeze(&after, "a");
    follow_for(&fixture, &[&after], ALMOST).await;
    assert!(unhealthy(&fixture).await.is_empty());
    follow_for(&fixture, &[&after], FOLLOW_INTERVAL * 3).await;
    assert_eq!(unhealthy(&fixture).await, ["a"]);
}

#[tokio::test]
async fn nothing_is_unhealthy_while_most_backends_fail() {
    let (fixture, stores) = (fixture(), Stores::named(&["a", "b", "c", "d", "e"]));
    let one = stores.instance(&fixture, 1).await;
    for backend in ["a", "b", "c"] {
        freeze(&one, backend);
    }
    follow_for(&fixture, &[&one], AFTER * 3).await;
    assert!(unhealthy(&fixture).await.is_empty());
    thaw(&one, "c");
    follow_for(&fixture, &[&one], SETTLING * 2).await;
    assert_eq!(unhealthy(&fixture).await, ["a", "b"]);
}

#[tokio::test]
async fn idle_backends_are_probed_before_one_is_unhealthy() {
    let (fixture, stores) = (fixture(), Stores::named(&["a", "b", "c"]));
    let one = stores.instance(&fixture, 1).await;
    freeze(&one, "a");
    // The network is gone, but no request has used the other stores yet.
    for idle in &stores.0[1..] {
        idle.go_away();
    }
    follow_for(&fixture, &[&one], AFTER * 2).await;
    assert!(unhealthy(&fixture).await.is_empty());
    for idle in &stores.0[1..] {
        idle.come_back();
    }
    follow_for(&fixture, &[&one], FOLLOW_INTERVAL * 3).await;
    assert_eq!(unhealthy(&fixture).await, ["a"]);
}
