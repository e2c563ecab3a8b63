//! Tests of the clock judge.

use std::time::Duration;

use super::{ClockChange, ClockJudge, Observation, STEADY, StoreTime, TOLERANCE};
use crate::clock::{Reading, Timestamp};

const START: Reading = Reading { wall: Timestamp::from_millis(1_700_000_000_000), boot: Duration::from_secs(100) };
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);

fn seen(reading: Reading) -> Observation {
    Observation { reading, is_synchronised: false, store: None, newest: None }
}

/// An observation with a newest time in the catalog of a day before the start.
fn long_after(reading: Reading) -> Observation {
    Observation { newest: Some(back(START, 24 * HOUR).wall), ..seen(reading) }
}

/// The reading after the wall clock was set ahead by this much.
fn ahead(reading: Reading, by: Duration) -> Reading {
    Reading { wall: reading.wall.after(by), ..reading }
}

fn back(reading: Reading, by: Duration) -> Reading {
    let millis = i64::try_from(by.as_millis()).expect("small");
    Reading { wall: Timestamp::from_millis(reading.wall.millis() - millis), ..reading }
}

/// A judge after an observation of a synchronised clock.
fn trusting() -> ClockJudge {
    let mut judge = ClockJudge::default();
    assert_eq!(judge.judge(&Observation { is_synchronised: true, ..seen(START) }), None);
    judge
}

fn is_held(change: Option<ClockChange>, word: &str) -> bool {
    matches!(change, Some(ClockChange::Held(hold)) if hold.reason.contains(word))
}

#[test]
fn step_over_a_minute_holds_in_either_direction() {
    let later = START.after(HOUR);
    let just = TOLERANCE + Duration::from_millis(1);
    assert!(is_held(trusting().judge(&seen(ahead(later, just))), "jumped ahead by 60 s"));
    assert!(is_held(trusting().judge(&seen(back(later, just))), "jumped back by 60 s"));
    for reading in [ahead(later, TOLERANCE), back(later, TOLERANCE), later] {
        assert_eq!(trusting().judge(&seen(reading)), None);
    }
}

#[test]
fn suspend_is_no_step() {
    let mut judge = trusting();
    assert_eq!(judge.judge(&seen(START.after(Duration::from_hours(100)))), None);
    assert!(judge.held().is_none());
}

#[test]
fn small_steps_add_up() {
    let mut judge = trusting();
    let changes: Vec<_> = (1..=4).map(|step| judge.judge(&seen(ahead(START, 20 * step * SECOND)))).collect();
    assert_eq!(changes[..3], [None, None, None]);
    assert!(is_held(changes[3].clone(), "jumped ahead by 80 s"));
}

#[test]
fn clock_behind_the_catalog_holds() {
    let newest = |by| Observation { newest: Some(START.wall.after(by)), ..seen(START.after(SECOND)) };
    assert_eq!(trusting().judge(&newest(TOLERANCE)), None);
    let mut judge = trusting();
    assert!(is_held(judge.judge(&newest(HOUR)), "behind the newest time in the catalog"));
    assert_eq!(judge.judge(&newest(HOUR)), None, "a hold is reported once");
    assert!(judge.held().is_some());
}

#[test]
fn kernel_store_or_operator_ends_a_hold() {
    let jumped = ahead(START, HOUR);
    let held = || {
        let mut judge = trusting();
        assert!(is_held(judge.judge(&seen(jumped)), "ahead"));
        judge
    };
    let released = |mut judge: ClockJudge, seen: Observation| {
        let change = judge.judge(&seen);
        assert_eq!(judge.held().is_none(), matches!(change, Some(ClockChange::Released(_))), "{change:?}");
        judge.held().is_none()
    };
    let later = seen(jumped.after(STEADY + HOUR));
    assert!(!released(held(), later), "the hold does not end by time");
    assert!(released(held(), Observation { is_synchronised: true, ..later }));
    assert!(released(held(), Observation { store: Some(later.reading.wall), ..later }));
    assert!(!released(held(), Observation { store: Some(START.wall), ..later }), "the store disagrees");
    let mut judge = held();
    assert!(judge.accept(&later).is_some_and(|hold| hold.reason.contains("ahead")));
    assert_eq!(judge.judge(&seen(later.reading.after(SECOND))), None, "the accepted reading is the new anchor");
}

#[test]
fn accepted_time_does_not_hold_again() {
    let behind = Observation { newest: Some(START.wall.after(HOUR)), ..seen(START.after(SECOND)) };
    let mut judge = trusting();
    assert!(is_held(judge.judge(&behind), "behind"));
    judge.accept(&behind);
    assert_eq!(judge.judge(&behind), None);
    let newer = Observation { newest: Some(START.wall.after(2 * HOUR)), ..behind };
    assert!(is_held(judge.judge(&newer), "behind"), "a newer time holds again");
}

#[test]
fn unsynchronised_clock_at_the_start_holds_for_15_minutes() {
    let mut judge = ClockJudge::default();
    assert!(is_held(judge.judge(&long_after(START)), "synchronised at the start"));
    assert_eq!(judge.judge(&long_after(START.after(Duration::from_secs(899)))), None);
    assert!(judge.held().is_some());
    assert!(matches!(judge.judge(&long_after(START.after(STEADY))), Some(ClockChange::Released(_))));
    assert_eq!(judge.judge(&long_after(START.after(HOUR))), None, "only at the start");
}

#[test]
fn unsynchronised_clock_is_trusted_after_a_short_stop_and_with_an_empty_catalog() {
    for newest in [None, Some(START.wall), Some(back(START, STEADY).wall)] {
        let mut judge = ClockJudge::default();
        assert_eq!(judge.judge(&Observation { newest, ..seen(START) }), None, "{newest:?}");
        assert!(is_held(judge.judge(&seen(ahead(START, HOUR))), "jumped"), "later steps are still detected");
    }
    let newest = Some(back(START, STEADY + SECOND).wall);
    assert!(is_held(ClockJudge::default().judge(&Observation { newest, ..seen(START) }), "synchronised"));
}

#[test]
fn step_in_the_first_15_minutes_needs_confirmation() {
    let mut judge = ClockJudge::default();
    assert!(is_held(judge.judge(&long_after(START)), "synchronised"));
    assert!(is_held(judge.judge(&long_after(ahead(START.after(SECOND), HOUR))), "jumped"));
    assert_eq!(judge.judge(&long_after(ahead(START.after(2 * STEADY), HOUR))), None);
    assert!(judge.held().is_some());
}

#[test]
fn store_time_advances_with_the_time_since_boot() {
    let store = StoreTime::default();
    assert_eq!(store.now(START.boot), None);
    store.note(START.wall, START.boot);
    assert_eq!(store.now(START.boot + HOUR), Some(START.wall.after(HOUR)));
    assert_eq!(store.now(START.boot + HOUR + SECOND), None, "it is too old");
}
