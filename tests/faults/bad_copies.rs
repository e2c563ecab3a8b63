//! Missing, truncated or corrupt copies of content in a dedup bucket: the next write of the same bytes repairs them for
//! every key, and no new write depends on a copy whose state is unknown.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use s3o_backend::identity::IDENTITY_KEY;
use s3o_backend::layers::Fault;
use s3o_cache::CacheSettings;
use s3o_catalog::Mode;
use s3o_engine::{Declared, Error, PutObject};
use s3o_model::etag;
use s3o_model::intent::DeclaredDigests;
use s3o_tests::environment::{Environment, ProcessSettings};
use s3o_tests::harness::{Expected, Harness, get};
use sha2::{Digest as _, Sha256};

const BODY: &[u8] = b"a known body";
const CORRUPT: &[u8] = b"b known body";
const CACHE: CacheSettings =
    CacheSettings { max_bytes: 1 << 20, object_bytes_max: 1 << 20, ttl: Duration::from_mins(5) };

async fn harness() -> Harness {
    Harness::with_bucket(Environment::new(1 << 20).with_dedup(true), Mode::Inline).await
}

async fn put(harness: &Harness, name: &str, signed: bool) -> Result<(), Error> {
    let sha256 = signed.then(|| etag::Sha256(Sha256::digest(BODY).into()));
    let declared =
        Declared { digests: DeclaredDigests { sha256, ..DeclaredDigests::default() }, ..Declared::default() };
    let client = Arc::new(());
    let put = PutObject { declared, ..harness.put(name, BODY, &client) };
    harness.engine.put_object(put).await.map(drop)
}

/// The physical key of the only body.
fn physical_key(harness: &Harness) -> String {
    let keys = harness.memory.keys();
    let mut bodies = keys.into_iter().filter(|key| !key.starts_with(".s3o/"));
    let key = bodies.next().expect("a body");
    assert_eq!(bodies.next(), None, "one body");
    key
}

/// Backend calls after the first `since`.
fn operations(harness: &Harness, since: u64) -> Vec<&'static str> {
    let since = usize::try_from(since).expect("few");
    harness.flaky.log().iter().skip(since).map(|call| call.operation).collect()
}

fn all_have_body(names: &[&'static str]) -> Expected {
    names.iter().map(|name| (*name, vec![Some(BODY.to_vec())])).collect()
}

#[tokio::test]
async fn duplicate_costs_one_probe_and_new_content_none() {
    let harness = harness().await;
    let before = harness.flaky.calls();
    put(&harness, "a", true).await.expect("stored");
    assert_eq!(operations(&harness, before), ["put"]);
    let before = harness.flaky.calls();
    put(&harness, "b", true).await.expect("stored");
    assert_eq!(operations(&harness, before), ["probe"]);
    let before = harness.flaky.calls();
    put(&harness, "c", false).await.expect("stored");
    assert_eq!(operations(&harness, before), ["put", "probe"]);
    harness.check(&all_have_body(&["a", "b", "c"])).await;
}

#[tokio::test]
async fn next_write_of_same_bytes_repairs_every_key() {
    for left in [None, Some(&BODY[..3]), Some(b"a known body and more".as_slice())] {
        for signed in [true, false] {
            for name in ["a", "c"] {
                let harness = harness().await;
                put(&harness, "a", false).await.expect("stored");
                put(&harness, "b", true).await.expect("stored");
                harness.settle().await;
                harness.memory.corrupt(&physical_key(&harness), left.map(Bytes::from_static));
                put(&harness, name, signed).await.expect("stored");
                harness.check(&all_have_body(&["a", "b", name])).await;
                physical_key(&harness);
            }
        }
    }
}

#[tokio::test]
async fn next_write_repairs_copy_that_read_found_corrupt() {
    for signed in [true, false] {
        let environment = Environment::new(1 << 20).with_dedup(true).with_cache(Some(CACHE));
        let harness = Harness::with_bucket(environment, Mode::Inline).await;
        put(&harness, "a", false).await.expect("stored");
        harness.memory.corrupt(&physical_key(&harness), Some(Bytes::from_static(CORRUPT)));
        assert!(matches!(harness.engine.get_object(get("a")).await, Err(Error::Damaged(_))));
        put(&harness, "b", signed).await.expect("stored");
        harness.check(&all_have_body(&["a", "b"])).await;
    }
}

#[tokio::test]
async fn copy_that_read_found_missing_needs_no_probe() {
    let harness = harness().await;
    put(&harness, "a", false).await.expect("stored");
    harness.memory.corrupt(&physical_key(&harness), None);
    assert!(matches!(harness.engine.get_object(get("a")).await, Err(Error::Damaged(_))));
    let before = harness.flaky.calls();
    put(&harness, "b", true).await.expect("stored");
    assert_eq!(operations(&harness, before), ["put"]);
    harness.check(&all_have_body(&["a", "b"])).await;
}

#[tokio::test]
async fn copy_with_unknown_state_is_not_shared() {
    for signed in [true, false] {
        let harness = harness().await;
        put(&harness, "a", false).await.expect("stored");
        // The probe comes first with a declared digest, and after the put without one.
        let probe = harness.flaky.calls() + if signed { 1 } else { 2 };
        harness.flaky.fail_call(probe, Fault::Wrong404);
        if signed {
            // After the put, the commit probes the known copy again.
            harness.flaky.fail_call(probe + 2, Fault::Wrong404);
        }
        put(&harness, "b", signed).await.expect("stored");
        harness.settle().await;
        assert_eq!(harness.memory.total_bytes(), 2 * BODY.len() as u64, "both copies are stored");
        put(&harness, "c", signed).await.expect("stored");
        harness.check(&all_have_body(&["a", "b", "c"])).await;
        assert_eq!(harness.memory.total_bytes(), 2 * BODY.len() as u64, "the first copy is shared again");
    }
}

#[tokio::test]
async fn outage_marks_no_copy_suspect() {
    let harness = harness().await;
    put(&harness, "a", false).await.expect("stored");
    harness.flaky.go_away();
    assert!(matches!(harness.engine.get_object(get("a")).await, Err(Error::Unavailable { .. })));
    put(&harness, "b", true).await.expect_err("away");
    harness.flaky.come_back();
    let before = harness.flaky.calls();
    put(&harness, "b", true).await.expect("stored");
    assert_eq!(operations(&harness, before), ["probe"], "the copy is still trusted");
    harness.check(&all_have_body(&["a", "b"])).await;
}

#[tokio::test]
async fn wrong_disk_marks_no_copy_suspect() {
    let harness = harness().await;
    put(&harness, "a", false).await.expect("stored");
    let physical = physical_key(&harness);
    let (identity, body) =
        (harness.memory.bytes(IDENTITY_KEY).expect("an identity"), harness.memory.bytes(&physical).expect("a body"));
    harness.memory.corrupt(IDENTITY_KEY, None);
    harness.memory.corrupt(&physical, None);
    assert!(harness.engine.get_object(get("a")).await.is_err());
    harness.memory.plant(IDENTITY_KEY, identity);
    harness.memory.plant(&physical, body);
    let before = harness.flaky.calls();
    put(&harness, "b", true).await.expect("stored");
    assert_eq!(operations(&harness, before), ["probe"], "the copy is still trusted");
    harness.check(&all_have_body(&["a", "b"])).await;
}

/// With `write_copies_min` 2, a write never relies on content of which only one copy could be proven.
#[tokio::test]
async fn write_that_needs_two_copies_does_not_share_content_with_one_good_copy() {
    for signed in [true, false] {
        let settings = ProcessSettings { copies: 2, copies_min: 2, ..ProcessSettings::default() };
        let environment = Environment::new(1 << 20).with_dedup(true).with_copies(2, 1 << 20).with_settings(settings);
        let harness = Harness::with_bucket(environment, Mode::Inline).await;
        put(&harness, "a", false).await.expect("stored");
        let places = harness.texts("SELECT backend_name FROM object_locations ORDER BY backend_name").await;
        assert_eq!(places, ["memory", "second"]);
        harness.environment.backends[1].flaky.go_away();
        put(&harness, "b", signed).await.expect("stored on the other backends");
        assert_eq!(harness.texts("SELECT id FROM contents WHERE state = 'live'").await.len(), 2, "not shared");
        harness.environment.backends[1].flaky.come_back();
        harness.check(&all_have_body(&["a", "b"])).await;
    }
}
