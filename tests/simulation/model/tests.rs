//! Which answers the model allows, and which it rejects.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use s3o_model::clock::Clock as _;
use s3o_model::expiry::Expiry;

use super::{KeyContent, KeyModel, ModelCondition, ModelWrite, REAPER_PROMOTES};
use crate::clock::SimulatedClock;

const MINUTE: Duration = Duration::from_mins(1);
const ALMOST_A_MINUTE: Duration = Duration::from_millis(59_999);

fn empty() -> KeyModel {
    KeyModel::new(Arc::default())
}

fn write(key: &mut KeyModel, request: u64, value: KeyContent) {
    key.start_write(request, ModelWrite { declared: true, ..ModelWrite::of(value, ModelCondition::Always) });
}

fn put(key: &mut KeyModel, request: u64, value: KeyContent) {
    write(key, request, value);
    key.answered(request, |_| true).expect("possible");
}

fn sees(key: &mut KeyModel, request: u64, value: KeyContent) -> bool {
    key.start_read(request);
    key.answered(request, |seen| seen == value).is_ok()
}

#[test]
fn acknowledged_write_must_be_read() {
    let mut key = empty();
    put(&mut key, 1, Some(7));
    assert!(sees(&mut key, 2, Some(7)));
    assert!(!sees(&mut key, 3, None));
}

#[test]
fn concurrent_read_sees_old_or_new_but_never_old_after_new() {
    let mut key = empty();
    put(&mut key, 1, Some(1));
    write(&mut key, 2, Some(2));
    assert!(sees(&mut key, 3, Some(1)));
    assert!(sees(&mut key, 4, Some(2)));
    assert!(!sees(&mut key, 5, Some(1)));
}

#[test]
fn slow_read_may_see_content_from_its_start() {
    let mut key = empty();
    put(&mut key, 1, Some(1));
    key.start_read(2);
    put(&mut key, 3, Some(2));
    assert!(key.answered(2, |seen| seen == Some(1)).is_ok());
    assert!(!sees(&mut key, 4, Some(1)));
}

#[test]
fn lost_write_is_decided_by_first_read() {
    let mut key = empty();
    write(&mut key, 1, Some(1));
    key.lost(1);
    assert_eq!(key.possible(), BTreeSet::from([None, Some(1)]));
    assert!(sees(&mut key, 2, None));
    if !REAPER_PROMOTES {
        assert!(!sees(&mut key, 3, Some(1)));
    }
}

#[test]
fn next_write_supersedes_abandoned_write() {
    let mut key = empty();
    write(&mut key, 1, Some(1));
    key.lost(1);
    put(&mut key, 2, Some(2));
    assert!(!sees(&mut key, 3, Some(1)));
}

#[test]
fn lifecycle_rule_may_delete_repeatedly_until_it_ends() {
    let mut key = empty();
    put(&mut key, 1, Some(1));
    key.start_removal(2);
    assert!(sees(&mut key, 3, Some(1)));
    assert!(sees(&mut key, 4, None));
    put(&mut key, 5, Some(2));
    assert!(sees(&mut key, 6, None));
    put(&mut key, 7, Some(3));
    assert!(sees(&mut key, 8, Some(3)));
    key.lost(2);
    put(&mut key, 9, Some(4));
    assert!(sees(&mut key, 10, Some(4)));
    assert!(!sees(&mut key, 11, None));
}

#[test]
fn condition_admits_one_of_two_writers() {
    let mut key = empty();
    for request in [1, 2] {
        key.start_write(request, ModelWrite::of(Some(1), ModelCondition::IfAbsent));
    }
    assert!(key.answered(1, |_| true).is_ok());
    assert!(key.answered(2, |_| true).is_err());
}

#[test]
fn refused_write_is_never_read() {
    let mut key = empty();
    write(&mut key, 1, Some(1));
    key.refused(1).expect("possible");
    assert!(!sees(&mut key, 2, Some(1)));
}

/// A key whose object expires in a minute, and its clock.
fn expiring() -> (KeyModel, Arc<SimulatedClock>) {
    let clock = Arc::new(SimulatedClock::default());
    let mut key = KeyModel::new(clock.clone());
    let expiry = Some(Expiry::After(MINUTE));
    key.start_write(1, ModelWrite { expiry, ..ModelWrite::of(Some(1), ModelCondition::Always) });
    key.confirm_expiry(1, clock.now().after(MINUTE)).expect("as requested");
    key.answered(1, |_| true).expect("possible");
    (key, clock)
}

#[test]
fn object_is_readable_until_its_expiry_and_not_after() {
    let (mut key, clock) = expiring();
    clock.jump(ALMOST_A_MINUTE);
    assert!(sees(&mut key, 2, Some(1)));
    clock.jump(Duration::from_millis(1));
    assert!(!sees(&mut key, 3, Some(1)));
}

#[test]
fn unexpired_object_must_be_read() {
    let (mut key, clock) = expiring();
    clock.jump(ALMOST_A_MINUTE);
    assert!(!sees(&mut key, 2, None));
}

#[test]
fn slow_read_may_see_object_that_expires_meanwhile() {
    for seen in [None, Some(1)] {
        let (mut key, clock) = expiring();
        key.start_read(2);
        clock.jump(MINUTE);
        assert!(key.answered(2, |value| value == seen).is_ok());
    }
}

#[test]
fn clock_set_back_shows_object_again_unless_row_was_deleted() {
    let (mut key, clock) = expiring();
    clock.jump(MINUTE);
    assert!(sees(&mut key, 2, None));
    clock.jump_back(Duration::from_secs(9));
    assert!(sees(&mut key, 3, Some(1)));
    assert!(sees(&mut key, 4, None));
    assert!(!sees(&mut key, 5, Some(1)));
}

#[test]
fn expired_object_counts_as_absent_for_conditions() {
    let (mut key, clock) = expiring();
    clock.jump(MINUTE);
    key.start_write(2, ModelWrite::of(Some(2), ModelCondition::IfMatch(1)));
    assert!(key.answered(2, |_| true).is_err());
    let (mut key, clock) = expiring();
    key.start_write(2, ModelWrite::of(Some(2), ModelCondition::IfAbsent));
    key.refused(2).expect("the object exists");
    clock.jump(MINUTE);
    key.start_write(3, ModelWrite::of(Some(2), ModelCondition::IfAbsent));
    assert!(key.answered(3, |_| true).is_ok());
    assert!(sees(&mut key, 4, Some(2)));
}

#[test]
fn overwrite_without_expiry_never_expires() {
    let (mut key, clock) = expiring();
    put(&mut key, 2, Some(2));
    clock.jump(MINUTE);
    assert!(!sees(&mut key, 3, None));
}

#[test]
fn confirmed_expiry_must_equal_requested_expiry() {
    let clock = Arc::new(SimulatedClock::default());
    let mut key = KeyModel::new(clock.clone());
    let expiry = Some(Expiry::After(MINUTE));
    key.start_write(1, ModelWrite { expiry, ..ModelWrite::of(Some(1), ModelCondition::Always) });
    assert!(key.confirm_expiry(1, clock.now()).is_err());
    put(&mut key, 2, Some(2));
    assert!(key.confirm_expiry(2, clock.now()).is_err());
}
