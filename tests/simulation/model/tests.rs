//! What the model allows, and what it does not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use s3o_model::clock::Clock as _;
use s3o_model::expiry::Expiry;

use super::{Condition, Key, REAPER_PROMOTES, Value, Write};
use crate::sky::Sky;

const MINUTE: Duration = Duration::from_mins(1);
const ALMOST_A_MINUTE: Duration = Duration::from_millis(59_999);

fn empty() -> Key {
    Key::new(Arc::default())
}

fn write(key: &mut Key, request: u64, value: Value) {
    key.start_write(request, Write { declared: true, ..Write::of(value, Condition::Always) });
}

fn put(key: &mut Key, request: u64, value: Value) {
    write(key, request, value);
    key.answered(request, |_| true).expect("possible");
}

fn sees(key: &mut Key, request: u64, value: Value) -> bool {
    key.start_read(request);
    key.answered(request, |seen| seen == value).is_ok()
}

#[test]
fn what_was_acknowledged_must_be_seen() {
    let mut key = empty();
    put(&mut key, 1, Some(7));
    assert!(sees(&mut key, 2, Some(7)));
    assert!(!sees(&mut key, 3, None));
}

#[test]
fn a_read_beside_a_write_may_see_both_but_never_goes_back() {
    let mut key = empty();
    put(&mut key, 1, Some(1));
    write(&mut key, 2, Some(2));
    assert!(sees(&mut key, 3, Some(1)));
    assert!(sees(&mut key, 4, Some(2)));
    assert!(!sees(&mut key, 5, Some(1)));
}

#[test]
fn a_slow_read_may_see_what_was_there_when_it_began() {
    let mut key = empty();
    put(&mut key, 1, Some(1));
    key.start_read(2);
    put(&mut key, 3, Some(2));
    assert!(key.answered(2, |seen| seen == Some(1)).is_ok());
    assert!(!sees(&mut key, 4, Some(1)));
}

#[test]
fn a_lost_write_is_settled_by_the_first_read() {
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
fn an_abandoned_write_is_superseded_by_the_next() {
    let mut key = empty();
    write(&mut key, 1, Some(1));
    key.lost(1);
    put(&mut key, 2, Some(2));
    assert!(!sees(&mut key, 3, Some(1)));
}

#[test]
fn a_rule_removes_as_often_as_it_likes_until_it_ends() {
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
fn a_condition_decides_between_two_writers() {
    let mut key = empty();
    for request in [1, 2] {
        key.start_write(request, Write::of(Some(1), Condition::IfAbsent));
    }
    assert!(key.answered(1, |_| true).is_ok());
    assert!(key.answered(2, |_| true).is_err());
}

#[test]
fn what_was_refused_is_never_seen() {
    let mut key = empty();
    write(&mut key, 1, Some(1));
    key.refused(1).expect("possible");
    assert!(!sees(&mut key, 2, Some(1)));
}

/// A key with a body that expires in a minute, and the clock over it.
fn mortal() -> (Key, Arc<Sky>) {
    let sky = Arc::new(Sky::default());
    let mut key = Key::new(sky.clone());
    let expiry = Some(Expiry::After(MINUTE));
    key.start_write(1, Write { expiry, ..Write::of(Some(1), Condition::Always) });
    key.told(1, sky.now().after(MINUTE)).expect("as asked");
    key.answered(1, |_| true).expect("possible");
    (key, sky)
}

#[test]
fn what_expires_is_there_until_its_moment_and_not_from_then_on() {
    let (mut key, sky) = mortal();
    sky.jump(ALMOST_A_MINUTE);
    assert!(sees(&mut key, 2, Some(1)));
    sky.jump(Duration::from_millis(1));
    assert!(!sees(&mut key, 3, Some(1)));
}

#[test]
fn what_has_not_expired_is_not_gone() {
    let (mut key, sky) = mortal();
    sky.jump(ALMOST_A_MINUTE);
    assert!(!sees(&mut key, 2, None));
}

#[test]
fn a_slow_read_may_see_what_expired_meanwhile() {
    for seen in [None, Some(1)] {
        let (mut key, sky) = mortal();
        key.start_read(2);
        sky.jump(MINUTE);
        assert!(key.answered(2, |value| value == seen).is_ok());
    }
}

#[test]
fn a_clock_that_is_set_back_shows_it_again_unless_it_was_removed() {
    let (mut key, sky) = mortal();
    sky.jump(MINUTE);
    assert!(sees(&mut key, 2, None));
    sky.jump_back(Duration::from_secs(9));
    assert!(sees(&mut key, 3, Some(1)));
    assert!(sees(&mut key, 4, None));
    assert!(!sees(&mut key, 5, Some(1)));
}

#[test]
fn what_has_expired_counts_as_absent() {
    let (mut key, sky) = mortal();
    sky.jump(MINUTE);
    key.start_write(2, Write::of(Some(2), Condition::IfMatch(1)));
    assert!(key.answered(2, |_| true).is_err());
    let (mut key, sky) = mortal();
    key.start_write(2, Write::of(Some(2), Condition::IfAbsent));
    key.refused(2).expect("it is there");
    sky.jump(MINUTE);
    key.start_write(3, Write::of(Some(2), Condition::IfAbsent));
    assert!(key.answered(3, |_| true).is_ok());
    assert!(sees(&mut key, 4, Some(2)));
}

#[test]
fn what_is_written_anew_stays() {
    let (mut key, sky) = mortal();
    put(&mut key, 2, Some(2));
    sky.jump(MINUTE);
    assert!(!sees(&mut key, 3, None));
}

#[test]
fn an_end_is_what_was_asked_for() {
    let sky = Arc::new(Sky::default());
    let mut key = Key::new(sky.clone());
    let expiry = Some(Expiry::After(MINUTE));
    key.start_write(1, Write { expiry, ..Write::of(Some(1), Condition::Always) });
    assert!(key.told(1, sky.now()).is_err());
    put(&mut key, 2, Some(2));
    assert!(key.told(2, sky.now()).is_err());
}
