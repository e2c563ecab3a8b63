//! What verifying finds: damage by its number, a backend that is away as not checked, and nothing of
//! what merely is under way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::Backend as _;
use s3o_backend::layers::Fault;
use s3o_catalog::Mode;
use s3o_engine::DeleteObject;
use s3o_model::conditions::WriteCondition;
use s3o_model::verify::Invariant;

use s3o_tests::house::{House, bucket, key as object_key};
use s3o_workers::VerifyScope;

const STRAY: &str = "bucket/stray~0123456789abcdef0123456789abcdef";

/// A house with three objects and nothing owed.
async fn house() -> House {
    let house = House::new(u64::MAX, Mode::Inline).await;
    for key in ["a", "b", "c"] {
        house.engine.put_object(house.put(key, b"eleven byte", &Arc::new(()))).await.expect("stored");
    }
    house.settle().await;
    house
}

/// The invariants that a deep look finds broken.
async fn broken(house: &House) -> Vec<Invariant> {
    let report = house.process.verifier.verify(VerifyScope::DEEP).await;
    assert!(report.unchecked.is_empty(), "{report:#?}");
    let broken = report.checks.iter().filter(|check| check.violations > 0);
    let numbers: Vec<_> = broken.map(|check| check.invariant).collect();
    assert_eq!(report.holds, numbers.is_empty());
    numbers
}

fn key_of(house: &House) -> String {
    house.memory.keys().into_iter().find(|key| !key.starts_with(".s3o/")).expect("an object")
}

#[tokio::test]
async fn a_sound_house_holds() {
    let house = house().await;
    assert_eq!(broken(&house).await, []);
    let report = house.process.verifier.verify(VerifyScope::DEEP).await;
    let held = &report.backends[0];
    assert_eq!((held.objects, held.bytes, held.foreign, held.books_bytes), (3, 33, 0, Some(33)));
    assert!(!house.process.verifier.progress().running);
}

#[tokio::test]
async fn bytes_that_are_gone_are_found() {
    let house = house().await;
    house.memory.corrupt(&key_of(&house), None);
    assert_eq!(broken(&house).await, [Invariant::I2, Invariant::I7]);
}

#[tokio::test]
async fn bytes_that_were_cut_are_found() {
    let house = house().await;
    house.memory.corrupt(&key_of(&house), Some(Bytes::from_static(b"eleven")));
    assert_eq!(broken(&house).await, [Invariant::I1, Invariant::I7]);
}

#[tokio::test]
async fn bytes_that_nobody_names_are_found_unless_they_are_a_strangers() {
    let house = house().await;
    house.memory.plant("bucket/holiday.jpg", Bytes::from_static(b"theirs"));
    house.memory.plant(".s3o/identity.bak", Bytes::from_static(b"own"));
    assert_eq!(broken(&house).await, []);
    assert_eq!(house.process.verifier.verify(VerifyScope::DEEP).await.backends[0].foreign, 1);
    house.memory.plant(STRAY, Bytes::from_static(b"ours"));
    assert_eq!(broken(&house).await, [Invariant::I3, Invariant::I7]);
}

#[tokio::test]
async fn verify_and_workers_never_turn_unnamed_bytes_into_objects() {
    let house = house().await;
    let delete = DeleteObject { bucket: bucket(), key: object_key("a"), condition: WriteCondition::None };
    let deleted = key_of(&house);
    house.engine.delete_object(delete).await.expect("deleted");
    house.settle().await;
    house.memory.plant(&deleted, Bytes::from_static(b"eleven byte"));
    house.memory.plant(STRAY, Bytes::from_static(b"ours"));
    assert_eq!(broken(&house).await, [Invariant::I3, Invariant::I7]);
    house.settle().await;
    assert_eq!(house.read("a").await, None);
    assert_eq!(house.read("stray").await, None);
}

#[tokio::test]
async fn temporary_files_and_unfinished_uploads_are_found() {
    let house = house().await;
    house.memory.plant(".s3o/tmp/0123456789abcdef0123456789abcdef", Bytes::new());
    assert_eq!(broken(&house).await, [Invariant::I3]);
    house.memory.corrupt(".s3o/tmp/0123456789abcdef0123456789abcdef", None);
    let upload = house.memory.start_upload(STRAY).await.expect("an upload");
    assert_eq!(broken(&house).await, [Invariant::I3]);
    house.memory.abort_upload(STRAY, &upload).await;
    assert_eq!(broken(&house).await, []);
}

#[tokio::test]
async fn a_lost_location_is_found_without_looking_deep() {
    let house = house().await;
    house.change("UPDATE object_locations SET state = 'lost'").await;
    let report = house.process.verifier.verify(VerifyScope::default()).await;
    let lost: Vec<_> = report.checks.iter().filter(|check| check.violations == 3).collect();
    assert_eq!(lost.iter().map(|check| check.invariant).collect::<Vec<_>>(), [Invariant::I2]);
    assert!(!report.deep && report.backends.is_empty());
}

#[tokio::test]
async fn more_is_listed_than_fits_a_page() {
    let house = house().await;
    for number in 0..2500 {
        house.memory.plant(&format!("bucket/{number:04}~{number:032x}"), Bytes::new());
    }
    let report = house.process.verifier.verify(VerifyScope::DEEP).await;
    let stray = report.checks.iter().find(|check| check.violations > 0).expect("found");
    assert_eq!((stray.invariant, stray.violations, stray.samples.len()), (Invariant::I3, 2500, 10));
    assert_eq!(report.backends[0].objects, 2503);
}

#[tokio::test]
async fn a_backend_that_is_away_is_not_checked_and_not_broken() {
    let house = house().await;
    house.memory.corrupt(&key_of(&house), None);
    // Identity, listing, the second look, drafts, uploads, identity: each may be the one that fails.
    for (offset, proven) in [(1, false), (2, false), (3, false), (4, true), (5, true), (6, false)] {
        house.flaky.fail_call(house.flaky.calls() + offset, Fault::Before);
        let report = house.process.verifier.verify(VerifyScope::DEEP).await;
        let broken = report.checks.iter().any(|check| check.violations > 0);
        assert!(!report.holds && report.unchecked.len() == 1, "{offset}: {report:#?}");
        assert_eq!(broken, proven, "{offset}: {report:#?}");
    }
    house.flaky.go_away();
    assert!(!house.process.verifier.verify(VerifyScope::DEEP).await.unchecked.is_empty());
    assert!(house.process.verifier.verify(VerifyScope::default()).await.holds, "the catalog alone is sound");
}

fn delete(name: &str) -> DeleteObject {
    DeleteObject { bucket: bucket(), key: object_key(name), condition: WriteCondition::None }
}

/// Overwrites and deletes a few keys again and again.
async fn churn(house: Arc<House>, lane: usize) {
    for round in 0..60 {
        let key = format!("{lane}/{}", round % 3);
        let stored = house.engine.put_object(house.put(&key, b"eleven byte", &Arc::new(()))).await;
        stored.expect("stored");
        if round % 4 == 3 {
            house.engine.delete_object(delete(&key)).await.expect("deleted");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn work_under_way_raises_no_alarm() {
    let house = Arc::new(House::new(u64::MAX, Mode::Threaded).await);
    let busy: Vec<_> = (0..6).map(|lane| tokio::spawn(churn(house.clone(), lane))).collect();
    let mut looks = 0;
    while !busy.iter().all(tokio::task::JoinHandle::is_finished) {
        let (report, _) =
            tokio::join!(house.process.verifier.verify(VerifyScope::DEEP), house.clean_after(Duration::ZERO));
        assert!(report.holds, "{report:#?}");
        looks += 1;
    }
    for lane in busy {
        lane.await.expect("no lane failed");
    }
    assert!(looks >= 5, "too few looks to show anything: {looks}");
    house.settle().await;
    assert_eq!(broken(&house).await, []);
}
