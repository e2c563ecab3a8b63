//! Tests of marks and of freezes per instance.

mod raises;
mod records;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::identity::{IDENTITY_KEY, Identity as Carried, MARKS_PREFIX, mark_key};
use s3o_backend::layers::{Fault, FaultPlan, Flaky};
use s3o_backend::{Fleet, Memory, SharedBackend};
use s3o_catalog::KnownBackend;
use s3o_catalog::conformance::fixture::Fixture;
use s3o_model::clock::Clock as _;
use s3o_model::entropy::SeededEntropy;
use s3o_model::ids::IdSource;
use s3o_model::names::BackendName;

use super::{AcceptAnswer, AcceptView, IdentityParts, IdentitySettings, IdentityWorker};
use crate::testing::{counted, fixture};
use crate::{Report, Worker as _};

const MINUTE: Duration = Duration::from_mins(1);

fn disk() -> BackendName {
    "disk".parse().expect("a name")
}

/// Each instance draws its own marks.
static SEEDS: AtomicU64 = AtomicU64::new(1);

/// One instance with one backend.
struct Instance {
    identity: IdentityWorker,
    fleet: Arc<Fleet>,
}

impl Instance {
    fn new(fixture: &Fixture, host: &str, stores: Vec<SharedBackend>) -> Self {
        Self::with(fixture, host, stores, IdentitySettings::default())
    }

    fn with(fixture: &Fixture, host: &str, stores: Vec<SharedBackend>, settings: IdentitySettings) -> Self {
        let catalog = Arc::new(fixture.catalog.clone());
        let fleet = Arc::new(Fleet::new(stores).expect("a fleet"));
        let entropy = SeededEntropy::new(SEEDS.fetch_add(1, Ordering::Relaxed));
        let identity = IdentityWorker::new(IdentityParts {
            identities: catalog.clone(),
            records: catalog,
            fleet: fleet.clone(),
            ids: IdSource::new(fixture.clock.clone(), Arc::new(entropy)),
            clock: fixture.clock.clone(),
            cluster: "ours".to_owned(),
            host: host.to_owned(),
            alarm: Arc::new(()),
            settings,
        });
        Self { identity, fleet }
    }

    async fn attached(fixture: &Fixture, host: &str, store: &Arc<Memory>) -> Self {
        let instance = Self::new(fixture, host, vec![store.clone()]);
        assert!(instance.identity.attach().await);
        instance
    }

    fn backend(&self) -> &SharedBackend {
        self.fleet.get(&disk()).expect("configured")
    }

    fn frozen(&self) -> Option<String> {
        self.fleet.state(&disk()).expect("known").frozen.clone()
    }

    async fn deletes(&self) -> bool {
        self.identity.permits_deletes(self.backend()).await.expect("compared")
    }

    async fn shown(&self, hash: Option<&str>) -> Option<AcceptView> {
        match self.identity.accept("disk", hash).await.expect("compared") {
            AcceptAnswer::Accepted => None,
            AcceptAnswer::Refused { shown, .. } => Some(*shown),
        }
    }
}

fn memory() -> Arc<Memory> {
    Arc::new(Memory::new(disk()))
}

/// A copy of this store.
fn clone_of(store: &Memory) -> Arc<Memory> {
    let clone = memory();
    for key in store.keys() {
        clone.plant(&key, store.bytes(&key).expect("listed"));
    }
    clone
}

fn carried(store: &Memory) -> Carried {
    Carried::decode(&store.bytes(IDENTITY_KEY).expect("an identity")).expect("readable")
}

fn marks(store: &Memory) -> Vec<String> {
    let keys = store.keys().into_iter();
    keys.filter_map(|key| key.strip_prefix(MARKS_PREFIX).map(str::to_owned)).collect()
}

async fn known(fixture: &Fixture) -> KnownBackend {
    fixture.catalog.known_backend(&disk()).await.expect("known")
}

async fn raise(instance: &Instance) {
    instance.identity.raise(instance.backend()).await.expect("raised");
}

#[tokio::test(start_paused = true)]
async fn raise_during_a_comparison_freezes_nothing() {
    let fixture = fixture();
    let flaky = Arc::new(Flaky::new(memory()));
    let instance = Instance::new(&fixture, "a", vec![flaky.clone()]);
    assert!(instance.identity.attach().await);

    flaky.fail_call(flaky.calls() + 1, Fault::Delay(Duration::from_secs(1)));
    let mut report = Report::default();
    let (permitted, raised) =
        tokio::join!(instance.identity.permits(instance.backend()), instance.identity.tick(&mut report));
    raised.expect("raised");
    assert!(permitted.expect("compared"));
    assert_eq!(instance.frozen(), None);
}

#[tokio::test]
async fn each_raise_creates_its_mark_object_and_deletes_the_previous_one() {
    let (fixture, store) = (fixture(), memory());
    let instance = Instance::attached(&fixture, "a", &store).await;
    for sequence in 1..4 {
        let known = known(&fixture).await;
        assert_eq!((known.mark_sequence, carried(&store).sequence), (sequence, sequence));
        assert_eq!(marks(&store), [known.mark.expect("confirmed")]);
        raise(&instance).await;
    }
}

#[tokio::test]
async fn stale_clone_is_frozen_before_anything_is_written_there() {
    let (fixture, store) = (fixture(), memory());
    let instance = Instance::attached(&fixture, "a", &store).await;
    let clone = clone_of(&store);
    raise(&instance).await;

    let other = Instance::new(&fixture, "b", vec![clone.clone()]);
    let before = clone.keys();
    assert!(other.identity.attach().await);
    assert!(other.frozen().is_some_and(|reason| reason.contains("stale clone")), "{:?}", other.frozen());
    assert_eq!((clone.keys(), clone.calls("write_own"), clone.calls("probe_traits")), (before, 0, 0));
    assert_eq!(known(&fixture).await.frozen_reason, None, "it is frozen for that instance only");
    assert_eq!(instance.frozen(), None);
}

#[tokio::test]
async fn older_identity_with_the_current_mark_object_is_raised_again() {
    let (fixture, store) = (fixture(), memory());
    let instance = Instance::attached(&fixture, "a", &store).await;
    let late = store.bytes(IDENTITY_KEY).expect("an identity");
    raise(&instance).await;
    store.plant(IDENTITY_KEY, late);
    assert!(instance.deletes().await);
    assert_eq!((instance.frozen(), carried(&store).sequence), (None, 3));
    assert_eq!(Some(carried(&store).mark), known(&fixture).await.mark);
}

#[tokio::test]
async fn backend_without_sequence_number_attaches_and_gets_one() {
    let (fixture, store) = (fixture(), memory());
    known(&fixture).await;
    fixture.change("UPDATE backends SET mark = 'old', past_marks = '[\"older\"]'", vec![]).await;
    store.plant(IDENTITY_KEY, Bytes::from_static(br#"{"cluster": "ours", "backend": "disk", "mark": "old"}"#));

    let instance = Instance::attached(&fixture, "a", &store).await;
    assert_eq!(instance.frozen(), None);
    let known = known(&fixture).await;
    assert_eq!((known.mark_sequence, carried(&store).sequence), (1, 1));
    assert_eq!(marks(&store), [known.mark.expect("confirmed")]);
    assert!(store.bytes(&mark_key("old")).is_none());
}

#[tokio::test]
async fn clone_that_lacks_the_newest_object_is_frozen() {
    let (fixture, store) = (fixture(), memory());
    Instance::attached(&fixture, "a", &store).await;
    let bucket = fixture.bucket("bucket").await;
    for number in 0..3 {
        fixture.put(bucket, &format!("k{number}"), 5).await;
    }
    let newest = fixture.catalog.newest_keys(&disk(), fixture.clock.now(), 32).await.expect("locations");
    for key in &newest[1..] {
        store.plant(key, Bytes::from_static(b"12345"));
    }
    let clone = clone_of(&store);
    let other = Instance::attached(&fixture, "b", &clone).await;
    assert!(other.frozen().is_some_and(|reason| reason.contains(&newest[0])), "{:?}", other.frozen());
    assert_eq!(clone.calls("write_own"), 0);
    let shown = other.shown(None).await.expect("shown");
    assert_eq!(shown.newest_missing, newest[..1]);

    // The object appears, as on a disk that was mounted late: the next attach succeeds.
    clone.plant(&newest[0], Bytes::from_static(b"12345"));
    fixture.clock.advance(MINUTE);
    assert!(other.identity.attach().await);
    assert_eq!(other.frozen(), None);
}

#[tokio::test]
async fn backend_accepted_with_missing_objects_attaches_at_the_next_start() {
    let (fixture, store) = (fixture(), memory());
    Instance::attached(&fixture, "a", &store).await;
    let bucket = fixture.bucket("bucket").await;
    fixture.put(bucket, "lost", 5).await;
    let instance = Instance::attached(&fixture, "a", &store).await;
    let shown = instance.shown(None).await.expect("shown");
    assert_eq!(shown.newest_missing.len(), 1);
    assert!(instance.shown(Some(&shown.hash)).await.is_none(), "accepted");
    assert_eq!(Instance::attached(&fixture, "a", &store).await.frozen(), None);
}

/// Fails every write of our own objects.
struct ReadOnlyStore;

impl FaultPlan for ReadOnlyStore {
    fn next_fault(&self, operation: &'static str, _key: &str) -> Option<Fault> {
        (operation == "write_own").then_some(Fault::Before)
    }
}

#[tokio::test]
async fn failed_raise_does_not_block_other_backends() {
    let fixture = fixture();
    let broken = Arc::new(Flaky::new(Arc::new(Memory::new("broken".parse().expect("a name")))));
    let store = memory();
    let instance = Instance::new(&fixture, "a", vec![broken.clone(), store.clone()]);
    assert!(instance.identity.attach().await);
    broken.set_fault_plan(Some(Arc::new(ReadOnlyStore)));
    let mut report = Report::default();
    assert!(instance.identity.tick(&mut report).await.is_err(), "the run still fails");
    assert_eq!(counted(&report), [("failed", 1), ("raised", 1)]);
    assert_eq!(carried(&store).sequence, 2);
}

#[tokio::test]
async fn raise_completes_with_a_mark_planned_after_its_start() {
    let (fixture, store) = (fixture(), memory());
    let instance = Instance::attached(&fixture, "a", &store).await;
    // A copy of the catalog that is made now knows this mark.
    fixture.catalog.plan_mark(&disk(), "open").await.expect("planned");
    raise(&instance).await;
    let known = known(&fixture).await;
    assert!(known.past_marks.contains(&"open".to_owned()));
    assert!(known.mark.is_some_and(|mark| mark != "open" && mark == carried(&store).mark));
}

#[tokio::test]
async fn two_catalogs_of_one_cluster_both_freeze_the_backend() {
    let (one, two, store) = (fixture(), fixture(), memory());
    let first = Instance::attached(&one, "a", &store).await;
    // The second catalog is a copy of the first one, from before this raise.
    let copied = known(&one).await;
    known(&two).await;
    let planned = two.catalog.plan_mark(&disk(), &copied.mark.expect("confirmed")).await.expect("planned");
    two.catalog.confirm_mark(&disk(), &planned.mark).await.expect("confirmed");
    let second = Instance::attached(&two, "b", &store).await;
    assert_eq!(second.frozen(), None, "it found a mark that it knows");

    // The first catalog finds an unknown mark and contests it.
    assert!(!first.deletes().await);
    assert!(first.frozen().is_some_and(|reason| reason.contains("does not know")), "{:?}", first.frozen());
    assert!(carried(&store).contested);
    assert!(!second.deletes().await);
    assert!(second.frozen().is_some_and(|reason| reason.contains("contested")), "{:?}", second.frozen());

    // A frozen instance does not contest: the accepted mark stays.
    let shown = second.shown(None).await.expect("shown");
    assert!(second.shown(Some(&shown.hash)).await.is_none(), "accepted");
    assert!(first.identity.attach().await);
    assert!(!carried(&store).contested && second.deletes().await && first.frozen().is_some());
}

#[tokio::test]
async fn catalog_that_never_confirmed_a_mark_contests_none() {
    let (one, restored, store) = (fixture(), fixture(), memory());
    Instance::attached(&one, "a", &store).await;
    known(&restored).await;
    restored.catalog.plan_mark(&disk(), "before").await.expect("planned");
    restored.catalog.confirm_mark(&disk(), "before").await.expect("confirmed");
    let instance = Instance::attached(&restored, "b", &store).await;
    assert!(instance.frozen().is_some() && !carried(&store).contested);
}
