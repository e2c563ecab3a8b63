//! Tests of the states of a fleet and of what placement sees of them.

use super::{FULL_FOR, Fleet, Health};
use crate::{Memory, SharedBackend};
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;
use std::sync::Arc;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn name(text: &str) -> BackendName {
    text.parse().expect("valid")
}

fn memory(text: &str) -> SharedBackend {
    Arc::new(Memory::new(name(text)))
}

#[test]
fn frozen_backend_is_not_writable_until_unfrozen() {
    let fleet = Fleet::new(vec![memory("b"), memory("a")]).expect("two names");
    let before = fleet.state(&name("a")).expect("known");
    fleet.set_frozen(&name("a"), Some("wrong disk".to_owned()));
    assert_eq!(before.frozen, None);
    assert!(fleet.views(NOW)[0].writable && !fleet.views(NOW)[1].writable);
    fleet.set_frozen(&name("a"), None);
    assert!(fleet.views(NOW)[1].writable);
}

#[test]
fn full_state_ends_after_a_minute_or_a_delete() {
    let fleet = Fleet::new(vec![memory("a")]).expect("one name");
    fleet.record_no_space(&name("a"), 10, NOW);
    assert_eq!(fleet.health(NOW)[0].1, Health::Full { from_bytes: 10 });
    assert_eq!(fleet.views(NOW)[0].full_from_bytes, Some(10));
    assert_eq!(fleet.views(NOW.after(FULL_FOR))[0].full_from_bytes, None);
    fleet.record_freed(&name("a"));
    assert_eq!(fleet.health(NOW)[0].1, Health::Ok);
}

#[test]
fn away_is_reported_before_frozen_and_full() {
    let fleet = Fleet::new(vec![memory("a")]).expect("one name");
    let word = || fleet.health(NOW)[0].1.as_str();
    fleet.record_no_space(&name("a"), 10, NOW);
    assert_eq!(word(), "full");
    fleet.set_frozen(&name("a"), Some("wrong disk".to_owned()));
    assert_eq!(word(), "frozen");
    for _ in 0..2 {
        fleet.record_probe(&name("a"), Err("no answer".to_owned()), NOW);
    }
    assert_eq!(word(), "away");
    assert!(!fleet.views(NOW)[0].reachable);
    fleet.record_probe(&name("a"), Ok(()), NOW);
    assert_eq!(word(), "frozen");
}

#[test]
fn backends_keep_their_order_and_duplicate_names_are_rejected() {
    let fleet = Fleet::new(vec![memory("b"), memory("a")]).expect("two names");
    let names: Vec<_> = fleet.backends().map(|backend| backend.name().to_string()).collect();
    assert_eq!(names, ["b", "a"]);
    assert!(fleet.get(&name("c")).is_none());
    assert!(Fleet::new(vec![memory("a"), memory("a")]).is_err());
}
