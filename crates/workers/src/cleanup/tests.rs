//! Facts about how many batches are under way.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::layers::{Fault, Flaky, Weather};
use s3o_backend::{Fleet, Memory};
use s3o_catalog::Cleanups as _;
use s3o_catalog::conformance::scene::Scene;
use s3o_model::backoff::Backoff;
use s3o_model::cleanup::Retries;
use s3o_model::entropy::SeededEntropy;
use s3o_model::ids::InstanceId;
use tokio::time::Instant;

use super::{BATCHES_MAX, Cleanup, CleanupSettings, Pace};
use crate::testing::{counted, ids, scene};
use crate::{Budget, Identity, IdentityParts, IdentitySettings, Report, Worker as _};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const BATCH: usize = 2;

/// A store whose every batch call takes a second.
struct Slow;

impl Weather for Slow {
    fn strike(&self, operation: &'static str, _key: &str) -> Option<Fault> {
        (operation == "delete_batch").then_some(Fault::Delay(SECOND))
    }
}

struct House {
    scene: Scene,
    store: Arc<Flaky>,
    worker: Cleanup,
}

impl House {
    /// A house with so many full batches in the queue.
    async fn with(batches: usize) -> Self {
        let scene = scene();
        let bucket = scene.bucket("gone").await;
        for number in 0..batches * BATCH {
            let key = format!("k{number}");
            scene.put(bucket, &key, 5).await;
            assert!(scene.delete(bucket, &key).await);
        }
        let store = Arc::new(Flaky::new(Arc::new(Memory::new("disk".parse().expect("a name")))));
        let worker = worker(&scene, &store).await;
        store.set_weather(Some(Arc::new(Slow)));
        Self { scene, store, worker }
    }

    /// One tick: how long it took, what it did, and whether more waits.
    async fn tick(&self) -> (Duration, Vec<(&'static str, u64)>, bool) {
        let (mut report, began) = (Report::default(), Instant::now());
        self.worker.tick(&mut report).await.expect("a tick");
        (began.elapsed(), counted(&report), report.more)
    }

    async fn queued(&self) -> u64 {
        self.scene.catalog.depths().await.expect("depths").cleanups
    }

    fn delete_calls(&self) -> usize {
        self.store.log().iter().filter(|call| call.operation == "delete_batch").count()
    }
}

async fn worker(scene: &Scene, store: &Arc<Flaky>) -> Cleanup {
    let catalog = Arc::new(scene.catalog.clone());
    let fleet = Arc::new(Fleet::new(vec![store.clone()]).expect("a fleet"));
    let identity = Arc::new(Identity::new(IdentityParts {
        identities: catalog.clone(),
        records: catalog.clone(),
        fleet: fleet.clone(),
        ids: ids(scene),
        clock: scene.clock.clone(),
        cluster: "ours".to_owned(),
        host: "host:9000".to_owned(),
        alarm: Arc::new(()),
        settings: IdentitySettings::default(),
    }));
    assert!(identity.attach().await);
    let ids = ids(scene);
    Cleanup {
        cleanups: catalog.clone(),
        contents: catalog,
        fleet,
        identity,
        instance: InstanceId::new(ids.fresh()),
        ids,
        entropy: Arc::new(SeededEntropy::new(1)),
        settings: CleanupSettings {
            batch_size: BATCH,
            concurrency: 8,
            claim_grace_period: MINUTE,
            reader_grace: MINUTE,
            retries: Retries { backoff: Backoff { min: MINUTE, max: MINUTE }, max_attempts: 10 },
        },
        budget: Budget::new(9),
        pace: Pace::default(),
        clock_guard: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_has_several_batches_under_way_once_it_has_shown_that_it_can() {
    let house = House::with(BATCHES_MAX).await;
    let (took, counted, _) = house.tick().await;
    assert_eq!(counted, [("success_absent", (BATCHES_MAX * BATCH) as u64)]);
    // 1, 2, 4, 4, 4 and the last one.
    assert_eq!((took, house.delete_calls(), house.queued().await), (6 * SECOND, BATCHES_MAX, 0));
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_bounded() {
    let house = House::with(BATCHES_MAX + 1).await;
    let (_, _, more) = house.tick().await;
    assert!(more);
    assert_eq!(house.queued().await, BATCH as u64);
}

#[tokio::test(start_paused = true)]
async fn while_requests_are_under_way_there_is_one_batch_at_a_time() {
    let house = House::with(1 + 2).await;
    let request = house.worker.budget.request();
    assert_eq!(house.tick().await, (SECOND, vec![("success_absent", BATCH as u64)], true));
    drop(request);
    let (took, _, more) = house.tick().await;
    assert_eq!((took, more, house.queued().await), (SECOND, false, 0), "the others go side by side");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_not_asked_time_and_again() {
    let house = House::with(BATCHES_MAX).await;
    house.store.refuse_deletes(true);
    let (_, counted, more) = house.tick().await;
    assert_eq!((more, house.delete_calls()), (false, 1), "{counted:?}");
    assert_eq!(house.queued().await, (BATCHES_MAX * BATCH) as u64);
}
