//! What comes late: deletes of bytes whose key was written again, writes that never arrived or arrive when nobody waits
//! for them any more, backends that are gone.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::{Fleet, Memory};
use s3o_catalog::{Buckets as _, Cleanups as _, Intents as _, Mode, Quotas as _, Stage};
use s3o_engine::DeleteObject;
use s3o_model::cleanup::Selection;
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::Md5;
use s3o_model::ids::{InstanceId, IntentId, WriteId};
use s3o_model::intent::{DeclaredDigests, Draft, Intent, IntentKind};
use s3o_model::shared::Shared;
use s3o_workers::{Cleanup, PendingReaper, Report, Verifier, VerifierParts, VerifyScope, Worker};

use s3o_tests::house::{Expected, House, bucket, key};
use s3o_tests::process::{LEASE, LONGEST};

async fn house() -> House {
    House::new(1 << 20, Mode::Inline).await
}

async fn put(house: &House, bytes: &[u8]) {
    let client = Arc::new(());
    house.engine.put_object(house.put("a", bytes, &client)).await.expect("stored");
}

async fn delete(house: &House) {
    let delete = DeleteObject { bucket: bucket(), key: key("a"), condition: WriteCondition::None };
    house.engine.delete_object(delete).await.expect("deleted");
}

fn holds(bytes: Option<&[u8]>) -> Expected {
    Expected::from([("a", vec![bytes.map(<[u8]>::to_vec)])])
}

/// An announced write of `a` whose writer is gone before a byte of it was sent.
async fn left(house: &House, size_bytes: u64, draft: Option<Draft>) -> Intent {
    let id = uuid::Uuid::from_u128(0x0195_0000_0000_7000_8000_0000_0000_0001);
    let intent = Intent {
        id: IntentId::new(id),
        write: WriteId::new(id),
        kind: IntentKind::Object,
        bucket: house.catalog.bucket(&bucket()).await.expect("a look").expect("the bucket").id,
        key: key("a"),
        backend: "memory".parse().expect("a name"),
        physical_key: format!("bucket/a~{}", id.as_simple()),
        size_bytes,
        draft,
    };
    let stage = Stage { intent, owner: InstanceId::new(id), lease: LEASE };
    house.catalog.stage(&stage).await.expect("staged");
    stage.intent
}

fn declared(md5: [u8; 16]) -> Draft {
    let declared = DeclaredDigests { md5: Some(Md5(md5)), ..DeclaredDigests::default() };
    Draft { declared, ..Draft::default() }
}

async fn ticked(worker: &dyn Worker) -> Report {
    let mut report = Report::default();
    worker.tick(&mut report).await.expect("a tick");
    report
}

async fn reap_after(house: &House, time: Duration) -> Report {
    house.clock.advance(time);
    ticked(&house.process.pending_reaper()).await
}

#[tokio::test]
async fn a_delete_that_comes_late_leaves_what_was_written_since() {
    let house = house().await;
    put(&house, b"first").await;
    delete(&house).await;
    put(&house, b"second").await;
    put(&house, b"third").await;
    let rows = house.catalog.queued_cleanups(&Selection::default(), 0, 10).await.expect("a page");
    assert_eq!(rows.len(), 2, "a delete and an overwrite wait");
    assert_eq!(house.clean_after(Duration::ZERO).await.items["success"], 2);
    house.check(&holds(Some(b"third"))).await;
}

#[tokio::test]
async fn an_overwrite_that_never_arrived_is_not_taken_for_what_it_meant_to_replace() {
    let house = house().await;
    put(&house, b"old body").await;
    // As long as the old one, so that only its name tells that it is another.
    left(&house, 8, Some(declared([7; 16]))).await;
    assert_eq!(reap_after(&house, LEASE).await.items.into_iter().collect::<Vec<_>>(), [("dropped", 1)]);
    house.check(&holds(Some(b"old body"))).await;
}

#[tokio::test]
async fn bytes_that_land_when_their_write_was_given_up_still_go() {
    for wait in [Duration::ZERO, Duration::from_mins(59)] {
        let house = house().await;
        let intent = left(&house, 4, None).await;
        assert_eq!(reap_after(&house, LEASE).await.items["dropped"], 1);
        assert_eq!(house.clean_after(Duration::ZERO).await.items["deferred"], 1, "absent, and that proves nothing yet");
        house.clock.advance(wait);
        house.memory.plant(&intent.physical_key, Bytes::from_static(b"late"));
        house.check(&holds(None)).await;
    }
}

#[tokio::test]
async fn what_is_owed_to_a_backend_that_is_not_configured_waits_for_it() {
    let house = house().await;
    put(&house, b"12345").await;
    delete(&house).await;
    left(&house, 3, Some(declared([7; 16]))).await;
    let elsewhere = Arc::new(Memory::new("elsewhere".parse().expect("a name")));
    let fleet = Arc::new(Fleet::new(vec![elsewhere]).expect("a fleet"));
    let reaper = PendingReaper { fleet: fleet.clone(), ..house.process.pending_reaper() };
    let cleanup = Cleanup { fleet: fleet.clone(), ..house.process.cleanup_over(house.catalog.clone()) };
    house.clock.advance(LEASE);
    assert_eq!(ticked(&reaper).await.items.into_iter().collect::<Vec<_>>(), [("ambiguous", 1)]);
    for _ in 0..50 {
        house.clock.advance(Duration::from_hours(1));
        assert!(ticked(&cleanup).await.items.is_empty(), "nobody settles what nobody can do");
    }
    let rows = house.catalog.queued_cleanups(&Selection::default(), 0, 10).await.expect("a page");
    assert!(rows.len() == 1 && rows[0].cleanup.attempts == 0, "{rows:?}");
    let books = house.catalog.books().await.expect("books");
    let owed: (u64, u64) = books.iter().fold((0, 0), |sum, b| (sum.0 + b.orphan_bytes, sum.1 + b.reserved_bytes));
    assert_eq!(owed, (5, 3), "their room is still taken");
    let verifier = Verifier::new(VerifierParts {
        verification: house.catalog.clone(),
        quotas: house.catalog.clone(),
        fleet,
        identity: house.process.identity.clone(),
        ahead: house.catalog.clone(),
        longest: Shared::new(LONGEST),
    });
    let report = verifier.verify(VerifyScope::DEEP).await;
    assert!(!report.holds && report.unchecked.iter().any(|left_out| left_out.what == "backend memory"), "{report:#?}");
    house.check(&holds(None)).await;
}
