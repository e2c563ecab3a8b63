//! Copies that are gone, cut or rotten under content that a bucket keeps once: the next write of the same bytes puts them
//! right for every name, and nothing that was sent just now depends on what nobody can tell.

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
use s3o_tests::house::{Expected, Ground, House, get};
use sha2::{Digest as _, Sha256};

const BODY: &[u8] = b"a known body";
const ROTTEN: &[u8] = b"b known body";
const CACHE: CacheSettings =
    CacheSettings { max_bytes: 1 << 20, object_bytes_max: 1 << 20, ttl: Duration::from_mins(5) };

async fn house() -> House {
    House::with_bucket(&Ground::new(1 << 20).with_dedup(true), Mode::Inline).await
}

async fn put(house: &House, name: &str, signed: bool) -> Result<(), Error> {
    let sha256 = signed.then(|| etag::Sha256(Sha256::digest(BODY).into()));
    let declared =
        Declared { digests: DeclaredDigests { sha256, ..DeclaredDigests::default() }, ..Declared::default() };
    let client = Arc::new(());
    let put = PutObject { declared, ..house.put(name, BODY, &client) };
    house.engine.put_object(put).await.map(drop)
}

/// Where the only body lies.
fn physical_key(house: &House) -> String {
    let keys = house.memory.keys();
    let mut bodies = keys.into_iter().filter(|key| !key.starts_with(".s3o/"));
    let key = bodies.next().expect("a body");
    assert_eq!(bodies.next(), None, "one body");
    key
}

/// All that was done to the backend since that many calls.
fn operations(house: &House, since: u64) -> Vec<&'static str> {
    let since = usize::try_from(since).expect("few");
    house.flaky.log().iter().skip(since).map(|call| call.operation).collect()
}

fn all_hold(names: &[&'static str]) -> Expected {
    names.iter().map(|name| (*name, vec![Some(BODY.to_vec())])).collect()
}

#[tokio::test]
async fn a_duplicate_costs_one_look_and_fresh_content_none() {
    let house = house().await;
    let before = house.flaky.calls();
    put(&house, "a", true).await.expect("stored");
    assert_eq!(operations(&house, before), ["put"]);
    let before = house.flaky.calls();
    put(&house, "b", true).await.expect("stored");
    assert_eq!(operations(&house, before), ["probe"]);
    let before = house.flaky.calls();
    put(&house, "c", false).await.expect("stored");
    assert_eq!(operations(&house, before), ["put", "probe"]);
    house.check(&all_hold(&["a", "b", "c"])).await;
}

#[tokio::test]
async fn the_next_write_of_the_same_bytes_heals_every_name() {
    for left in [None, Some(&BODY[..3]), Some(b"a known body and more".as_slice())] {
        for signed in [true, false] {
            for name in ["a", "c"] {
                let house = house().await;
                put(&house, "a", false).await.expect("stored");
                put(&house, "b", true).await.expect("stored");
                house.settle().await;
                house.memory.corrupt(&physical_key(&house), left.map(Bytes::from_static));
                put(&house, name, signed).await.expect("stored");
                house.check(&all_hold(&["a", "b", name])).await;
                physical_key(&house);
            }
        }
    }
}

#[tokio::test]
async fn what_a_read_finds_rotten_is_put_right_by_the_next_write() {
    for signed in [true, false] {
        let ground = Ground::new(1 << 20).with_dedup(true).with_cache(CACHE);
        let house = House::with_bucket(&ground, Mode::Inline).await;
        put(&house, "a", false).await.expect("stored");
        house.memory.corrupt(&physical_key(&house), Some(Bytes::from_static(ROTTEN)));
        assert!(matches!(house.engine.get_object(get("a")).await, Err(Error::Damaged(_))));
        put(&house, "b", signed).await.expect("stored");
        house.check(&all_hold(&["a", "b"])).await;
    }
}

#[tokio::test]
async fn what_a_read_finds_gone_needs_no_second_look() {
    let house = house().await;
    put(&house, "a", false).await.expect("stored");
    house.memory.corrupt(&physical_key(&house), None);
    assert!(matches!(house.engine.get_object(get("a")).await, Err(Error::Damaged(_))));
    let before = house.flaky.calls();
    put(&house, "b", true).await.expect("stored");
    assert_eq!(operations(&house, before), ["put"]);
    house.check(&all_hold(&["a", "b"])).await;
}

#[tokio::test]
async fn nothing_is_joined_that_nobody_can_tell_of() {
    for signed in [true, false] {
        let house = house().await;
        put(&house, "a", false).await.expect("stored");
        // Looked at first where the digest is known, last where it is not.
        let probe = house.flaky.calls() + if signed { 1 } else { 2 };
        house.flaky.fail_call(probe, Fault::Wrong404);
        if signed {
            // It is stored, and looked at again before it would be joined.
            house.flaky.fail_call(probe + 2, Fault::Wrong404);
        }
        put(&house, "b", signed).await.expect("stored");
        house.settle().await;
        assert_eq!(house.memory.total_bytes(), 2 * BODY.len() as u64, "both are stored");
        put(&house, "c", signed).await.expect("stored");
        house.check(&all_hold(&["a", "b", "c"])).await;
        assert_eq!(house.memory.total_bytes(), 2 * BODY.len() as u64, "the first is joined again");
    }
}

#[tokio::test]
async fn an_outage_makes_no_copy_suspect() {
    let house = house().await;
    put(&house, "a", false).await.expect("stored");
    house.flaky.go_away();
    assert!(matches!(house.engine.get_object(get("a")).await, Err(Error::Unavailable { .. })));
    put(&house, "b", true).await.expect_err("away");
    house.flaky.come_back();
    let before = house.flaky.calls();
    put(&house, "b", true).await.expect("stored");
    assert_eq!(operations(&house, before), ["probe"], "the copy is as good as before");
    house.check(&all_hold(&["a", "b"])).await;
}

#[tokio::test]
async fn what_the_wrong_disk_lacks_is_not_taken_for_bad() {
    let house = house().await;
    put(&house, "a", false).await.expect("stored");
    let physical = physical_key(&house);
    let (mark, body) =
        (house.memory.bytes(IDENTITY_KEY).expect("a mark"), house.memory.bytes(&physical).expect("a body"));
    house.memory.corrupt(IDENTITY_KEY, None);
    house.memory.corrupt(&physical, None);
    assert!(house.engine.get_object(get("a")).await.is_err());
    house.memory.plant(IDENTITY_KEY, mark);
    house.memory.plant(&physical, body);
    let before = house.flaky.calls();
    put(&house, "b", true).await.expect("stored");
    assert_eq!(operations(&house, before), ["probe"], "the right disk is back, and nothing was held against it");
    house.check(&all_hold(&["a", "b"])).await;
}
