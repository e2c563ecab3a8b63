//! Passes of reconcile under faults: a listing that cannot be relied on, an exchanged store, an accepted one, a damaged
//! index. None of them deletes bytes of an object.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use s3o_backend::Backend as _;
use s3o_backend::identity::IDENTITY_KEY;
use s3o_catalog::unit::{Row, Statement};
use s3o_catalog::{Driver, DriverLayer, Error as CatalogError};
use s3o_tests::environment::{Environment, ON_REQUEST, ProcessSettings};
use s3o_tests::harness::Harness;
use s3o_tests::invariants::violations;
use s3o_workers::{AcceptAnswer, ReconcileSettings, Report};

use crate::listing_faults::{FaultyListing, ListingFault, ListingFaultSlot};

pub const HOUR: Duration = Duration::from_hours(1);
pub const STRAY: &str = "bucket/stray~018bcfe568007000800000000000000a";
/// A later identifier than the accept of any test.
const YOUNG: &str = "bucket/young~7fffffffff007000800000000000000a";
/// More than a page of the layer, and more than the unlisted keys that a valid pass may have.
const OBJECTS: usize = 150;

/// A pass is due every hour, and two of them confirm a finding.
pub fn hourly() -> ProcessSettings {
    let reconcile = ReconcileSettings { enabled: true, interval: HOUR, ..ON_REQUEST };
    ProcessSettings { reconcile, ..ProcessSettings::default() }
}

async fn harness_with(fault: &ListingFaultSlot) -> Harness {
    let environment = Arc::new(Environment::new(u64::MAX).with_settings(hourly()));
    Harness::builder(&environment)
        .backend_layer(|inner, _| Arc::new(FaultyListing { inner, fault: fault.clone() }))
        .start_with_bucket()
        .await
}

async fn harness() -> Harness {
    harness_with(&ListingFaultSlot::default()).await
}

/// Stores small objects, whose keys differ in case.
pub async fn store_objects(harness: &Harness, count: usize) {
    for number in 0..count {
        let key = if number % 2 == 0 { format!("a{number}") } else { format!("B{number}") };
        harness.store(&key, b"five!").await.expect("stored");
    }
}

/// Runs ticks until the pass that is due now waits or ended; returns what they counted.
pub async fn pass(harness: &Harness) -> Report {
    harness.clock.advance(HOUR);
    ticks(harness).await
}

pub async fn ticks(harness: &Harness) -> Report {
    let mut all = Report::default();
    loop {
        let mut report = Report::default();
        harness.process.worker("reconciler").tick(&mut report).await.expect("a tick");
        let more = report.more;
        all.absorb(report);
        if !more {
            return all;
        }
    }
}

async fn two_passes(harness: &Harness) {
    for _ in 0..2 {
        pass(harness).await;
    }
}

pub async fn kinds(harness: &Harness) -> Vec<(String, String)> {
    let rows = harness.rows("SELECT kind, physical_key FROM findings ORDER BY kind, physical_key").await;
    rows.iter().map(|row| (row.string("kind").expect("a kind"), row.string("physical_key").expect("a key"))).collect()
}

async fn outcome(harness: &Harness) -> (String, String) {
    let rows =
        harness.rows("SELECT state, coalesce(reason, '') AS reason FROM reconcile_passes ORDER BY id DESC").await;
    (rows[0].string("state").expect("a state"), rows[0].string("reason").expect("a reason"))
}

pub fn objects(harness: &Harness) -> BTreeSet<String> {
    harness.memory.keys().into_iter().filter(|key| !key.starts_with(".s3o/")).collect()
}

/// Deletes what is queued, and asserts that nothing but `gone` was deleted.
pub async fn assert_deleted(harness: &Harness, before: &BTreeSet<String>, gone: &[&str]) {
    harness.clean_after(HOUR).await;
    let gone: BTreeSet<String> = gone.iter().map(|key| (*key).to_owned()).collect();
    assert_eq!(before.difference(&objects(harness)).cloned().collect::<BTreeSet<_>>(), gone);
    let broken = violations(&harness.driver, &harness.environment.backends).await;
    let is_planted = |what: &String| before.iter().any(|key| what.contains(key.as_str()));
    let broken: Vec<_> = broken.into_iter().filter(|what| !is_planted(what)).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[tokio::test]
async fn stray_object_is_deleted_after_two_passes_and_a_foreign_one_never() {
    let harness = harness().await;
    store_objects(&harness, 90).await;
    harness.memory.plant(STRAY, Bytes::from_static(b"ours"));
    harness.memory.plant("theirs", Bytes::from_static(b"theirs"));
    let before = objects(&harness);
    let first = pass(&harness).await;
    assert_eq!(first.items, [("valid", 1)].into());
    let event = &first.events[0];
    assert_eq!((event.name, &event.details["outcome"]), ("reconcile.completed", &"valid".into()));
    assert_eq!(event.details["found"], serde_json::json!({"stray": 1, "foreign": 1}));
    assert_deleted(&harness, &before, &[]).await;
    assert_eq!(pass(&harness).await.items["queued"], 1);
    assert_eq!(harness.texts("SELECT reason FROM cleanup_queue").await, ["reconcile"]);
    assert_deleted(&harness, &before, &[STRAY]).await;
    assert_eq!(kinds(&harness).await, [("foreign".to_owned(), "theirs".to_owned())]);
}

#[tokio::test]
async fn listing_that_cannot_be_relied_on_deletes_nothing_and_keeps_earlier_findings() {
    for fault in ListingFault::ALL {
        let slot = ListingFaultSlot::default();
        let harness = harness_with(&slot).await;
        store_objects(&harness, OBJECTS).await;
        harness.memory.plant(STRAY, Bytes::from_static(b"ours"));
        let before = objects(&harness);
        pass(&harness).await;
        let found = kinds(&harness).await;
        assert_eq!(found, [("stray".to_owned(), STRAY.to_owned())], "{fault:?}");
        *slot.lock() = Some(fault);
        for _ in 0..2 {
            pass(&harness).await;
            for _ in 0..5 {
                ticks(&harness).await;
            }
            let (state, reason) = outcome(&harness).await;
            assert!(state == "invalid" && !reason.is_empty(), "{fault:?}: {state} {reason}");
            assert_eq!(kinds(&harness).await, found, "{fault:?}");
        }
        assert_eq!(harness.texts("SELECT DISTINCT state FROM object_locations").await, ["present"], "{fault:?}");
        assert_deleted(&harness, &before, &[]).await;
        *slot.lock() = None;
        pass(&harness).await;
        assert_deleted(&harness, &before, &[STRAY]).await;
    }
}

#[tokio::test]
async fn exchanged_store_makes_the_pass_invalid() {
    let harness = harness().await;
    store_objects(&harness, 90).await;
    let (before, identity) = (objects(&harness), harness.memory.bytes(IDENTITY_KEY).expect("an identity"));
    harness.memory.corrupt(IDENTITY_KEY, None);
    two_passes(&harness).await;
    assert_eq!(outcome(&harness).await.0, "invalid");
    harness.memory.plant(IDENTITY_KEY, identity);
    assert!(harness.process.identity.attach().await);
    assert_eq!(kinds(&harness).await, []);
    assert_deleted(&harness, &before, &[]).await;
}

#[tokio::test]
async fn bytes_that_are_older_than_an_accept_wait_for_approval() {
    let harness = harness().await;
    store_objects(&harness, 3).await;
    pass(&harness).await;
    let identity = &harness.process.identity;
    let AcceptAnswer::Refused { shown, .. } = identity.accept("memory", None).await.expect("a query") else {
        panic!("accepted without its hash");
    };
    let accepted = identity.accept("memory", Some(&shown.hash)).await.expect("a query");
    assert!(matches!(accepted, AcceptAnswer::Accepted), "{accepted:?}");
    // A catalog from before these objects: they were acknowledged, and no row names them.
    for (key, bytes) in [(STRAY, b"acknowledged".as_slice()), (YOUNG, b"interrupted")] {
        harness.memory.plant(key, Bytes::from_static(bytes));
    }
    let before = objects(&harness);
    two_passes(&harness).await;
    assert_deleted(&harness, &before, &[YOUNG]).await;
    assert_eq!(kinds(&harness).await, [("stray".to_owned(), STRAY.to_owned())]);
}

#[tokio::test]
async fn missing_object_is_lost_and_recovered_when_its_bytes_are_back() {
    let harness = harness().await;
    harness.store("a", b"five!").await.expect("stored");
    harness.store("b", b"five!").await.expect("stored");
    let key = objects(&harness).into_iter().next().expect("an object");
    let bytes = harness.memory.bytes(&key).expect("bytes");
    harness.memory.corrupt(&key, None);
    two_passes(&harness).await;
    assert_eq!(harness.texts("SELECT state FROM object_locations ORDER BY state").await, ["lost", "present"]);
    assert_eq!(kinds(&harness).await, [("missing".to_owned(), key.clone())]);
    harness.memory.plant(&key, Bytes::from_static(b"wrong"));
    pass(&harness).await;
    assert_eq!(harness.texts("SELECT DISTINCT state FROM object_locations ORDER BY state").await, ["lost", "present"]);
    harness.memory.plant(&key, bytes);
    assert_eq!(pass(&harness).await.items["recovered"], 1);
    assert_eq!(harness.texts("SELECT DISTINCT state FROM object_locations").await, ["present"]);
    assert_eq!(harness.read("a").await.as_deref(), Some(b"five!".as_slice()));
    harness.check_settled().await;
}

#[tokio::test]
async fn copies_that_are_missing_or_truncated_are_replaced() {
    let environment = Environment::new(u64::MAX).with_copies(2, u64::MAX);
    let settings = ProcessSettings { copies: 2, ..hourly() };
    let harness = Harness::builder(&Arc::new(environment.with_settings(settings))).start_with_bucket().await;
    for key in ["a", "b"] {
        harness.store(key, b"five!").await.expect("stored");
    }
    let mut keys = objects(&harness).into_iter();
    let (missing, short) = (keys.next().expect("a copy"), keys.next().expect("a copy"));
    harness.memory.corrupt(&missing, None);
    harness.memory.corrupt(&short, Some(Bytes::from_static(b"five")));
    two_passes(&harness).await;
    harness.settle().await;
    pass(&harness).await;
    assert_eq!(kinds(&harness).await, []);
    harness.check_settled().await;
}

#[tokio::test]
async fn unfinished_upload_and_draft_are_removed_and_the_living_key_stays() {
    let harness = harness().await;
    harness.store("a", b"five!").await.expect("stored");
    let key = objects(&harness).into_iter().next().expect("an object");
    harness.memory.start_upload(&key).await.expect("an upload");
    let draft = ".s3o/tmp/018bcfe568007000800000000000000a";
    harness.memory.plant(draft, Bytes::from_static(b"half"));
    pass(&harness).await;
    let found = [("draft".to_owned(), draft.to_owned()), ("upload".to_owned(), key)];
    assert_eq!(kinds(&harness).await, found);
    pass(&harness).await;
    harness.clean_after(HOUR).await;
    assert_eq!((harness.memory.uploads(), harness.memory.bytes(draft)), (0, None));
    assert_eq!(harness.read("a").await.as_deref(), Some(b"five!".as_slice()));
    harness.check_settled().await;
}

/// Queries by the index of the locations find no row.
struct DamagedIndex(Arc<dyn Driver>);

#[async_trait]
impl DriverLayer for DamagedIndex {
    fn inner(&self) -> &dyn Driver {
        self.0.as_ref()
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, CatalogError> {
        let rows = self.0.read(query).await?;
        let is_location = |row: &Row| row.text("kind").is_ok_and(|kind| kind == "location");
        Ok(rows.into_iter().filter(|row| !is_location(row)).collect())
    }
}

#[tokio::test]
async fn damaged_index_deletes_no_living_bytes() {
    let environment = Arc::new(Environment::new(u64::MAX).with_settings(hourly()));
    let builder = Harness::builder(&environment).catalog_layer(|inner| Arc::new(DamagedIndex(inner)));
    let harness = builder.start_with_bucket().await;
    store_objects(&harness, 90).await;
    let before = objects(&harness);
    two_passes(&harness).await;
    assert_eq!(kinds(&harness).await.len(), 90, "without the index, every object seems to be stray");
    assert_eq!(harness.texts("SELECT physical_key FROM cleanup_queue").await, [""; 0], "the tables name them");
    assert_deleted(&harness, &before, &[]).await;
}
