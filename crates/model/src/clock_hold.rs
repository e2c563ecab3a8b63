//! Whether what time decides has to wait, because the wall clock cannot be trusted.
//!
//! The wall clock can be set; the time since boot cannot, and it counts suspended time. Slewing changes both alike, so
//! only a step of the wall clock moves them apart. A leap second is far below the tolerance.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Reading, Timestamp};

/// By how much the wall clock may step, or lie behind, without consequence.
pub const TOLERANCE: Duration = Duration::from_mins(1);
/// How long a clock that was not synchronised at the start has to run steadily; also, how old the newest time in the catalog
/// may be for such a clock to be trusted at once.
pub const STEADY: Duration = Duration::from_mins(15);
/// How long the date that a store sent counts.
const STORE_DATE_MAX_AGE: Duration = Duration::from_hours(1);

/// The date that a store last sent.
#[derive(Debug, Default)]
pub struct StoreTime(Mutex<Option<(Timestamp, Duration)>>);

/// Everything that is known of the clock at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// What the clocks show.
    pub reading: Reading,
    /// Whether the kernel calls the wall clock synchronised.
    pub is_synchronised: bool,
    /// What a store's clock shows, by the last date that one sent.
    pub store: Option<Timestamp>,
    /// The newest time in the catalog.
    pub newest: Option<Timestamp>,
}

/// Why what time decides waits, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Why.
    pub reason: String,
    /// Since when, by the wall clock that is in doubt.
    pub since: Timestamp,
}

/// What changed with an observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// What time decides waits from now on, or for another reason.
    Held(Hold),
    /// It waits no longer.
    Released(&'static str),
}

/// Judges the wall clock from one observation to the next.
#[derive(Debug, Default)]
pub struct ClockJudge {
    /// The last moment at which the wall clock was trusted, or began to be watched.
    anchor: Option<Reading>,
    held: Option<Held>,
    /// Times in the catalog up to this one are known to be wrong, or to be the past.
    forgiven: Option<Timestamp>,
}

#[derive(Debug)]
struct Held {
    hold: Hold,
    /// Whether steadiness alone ends it, counted from here.
    steady_since: Option<Duration>,
}

impl StoreTime {
    /// Notes the date that a store sent.
    pub fn note(&self, date: Timestamp, boot: Duration) {
        *self.0.lock() = Some((date, boot));
    }

    /// What the store's clock shows now; nothing if the last date is old.
    #[must_use]
    pub fn now(&self, boot: Duration) -> Option<Timestamp> {
        let (date, then) = (*self.0.lock())?;
        let age = boot.checked_sub(then).filter(|age| *age <= STORE_DATE_MAX_AGE)?;
        Some(date.after(age))
    }
}

impl ClockJudge {
    /// Takes an observation into account.
    pub fn judge(&mut self, seen: &Observation) -> Option<Change> {
        if let Some(witness) = confirmed_by(seen) {
            return self.release(seen).map(|_| Change::Released(witness));
        }
        let is_first = self.anchor.is_none();
        let anchor = *self.anchor.get_or_insert(seen.reading);
        if let Some(reason) = jumped(anchor, seen.reading) {
            self.anchor = Some(seen.reading);
            return Some(self.hold(reason, seen, None));
        }
        let waits_for_a_witness = self.held.as_ref().is_some_and(|held| held.steady_since.is_none());
        match self.behind(seen) {
            Some(_) if waits_for_a_witness => None,
            Some(reason) => Some(self.hold(reason, seen, None)),
            None if is_first && may_be_ahead(seen) => {
                let reason = "the kernel did not call the clock synchronised at the start".to_owned();
                Some(self.hold(reason, seen, Some(seen.reading.boot)))
            }
            None => self.steadied(seen),
        }
    }

    /// An operator says that the clock is right; what was held is returned.
    pub fn accept(&mut self, seen: &Observation) -> Option<Hold> {
        self.release(seen)
    }

    /// Why what time decides waits now.
    #[must_use]
    pub fn held(&self) -> Option<&Hold> {
        self.held.as_ref().map(|held| &held.hold)
    }

    fn hold(&mut self, reason: String, seen: &Observation, steady_since: Option<Duration>) -> Change {
        let hold = Hold { reason, since: seen.reading.wall };
        self.held = Some(Held { hold: hold.clone(), steady_since });
        Change::Held(hold)
    }

    fn release(&mut self, seen: &Observation) -> Option<Hold> {
        self.anchor = Some(seen.reading);
        self.forgiven = self.forgiven.max(seen.newest);
        self.held.take().map(|held| held.hold)
    }

    fn steadied(&mut self, seen: &Observation) -> Option<Change> {
        let since = self.held.as_ref()?.steady_since?;
        if seen.reading.boot.saturating_sub(since) < STEADY {
            return None;
        }
        self.release(seen).map(|_| Change::Released("it ran steadily for 15 minutes"))
    }

    fn behind(&self, seen: &Observation) -> Option<String> {
        let newest = seen.newest.filter(|newest| self.forgiven.is_none_or(|forgiven| *newest > forgiven))?;
        let by = newest.since(seen.reading.wall);
        (by > TOLERANCE)
            .then(|| format!("the clock is {} s behind the newest time in the catalog, {newest}", by.as_secs()))
    }
}

/// Whether a clock that nothing confirms may be ahead of the one by which the rows in the catalog were written. It is ahead
/// by no more than what has passed since the newest time there, and an empty catalog has no rows to expire too early.
fn may_be_ahead(seen: &Observation) -> bool {
    seen.newest.is_some_and(|newest| seen.reading.wall.since(newest) > STEADY)
}

/// The source that confirms the wall clock, if there is one.
fn confirmed_by(seen: &Observation) -> Option<&'static str> {
    let agrees = |store| is_near(store, seen.reading.wall);
    if seen.is_synchronised {
        Some("the kernel calls the clock synchronised")
    } else if seen.store.is_some_and(agrees) {
        Some("the date of a store agrees with the clock")
    } else {
        None
    }
}

fn is_near(one: Timestamp, other: Timestamp) -> bool {
    one.since(other) <= TOLERANCE && other.since(one) <= TOLERANCE
}

/// How the wall clock was set since the anchor, if by more than is tolerated.
fn jumped(anchor: Reading, now: Reading) -> Option<String> {
    let expected = anchor.wall.after(now.boot.saturating_sub(anchor.boot));
    let (ahead, back) = (now.wall.since(expected), expected.since(now.wall));
    if ahead > TOLERANCE {
        Some(format!("the clock jumped ahead by {} s", ahead.as_secs()))
    } else if back > TOLERANCE {
        Some(format!("the clock jumped back by {} s", back.as_secs()))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Change, ClockJudge, Observation, STEADY, StoreTime, TOLERANCE};
    use crate::clock::{Reading, Timestamp};

    const START: Reading = Reading { wall: Timestamp::from_millis(1_700_000_000_000), boot: Duration::from_secs(100) };
    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_hours(1);

    fn seen(reading: Reading) -> Observation {
        Observation { reading, is_synchronised: false, store: None, newest: None }
    }

    /// The newest time in the catalog is from a day before the start.
    fn long_after(reading: Reading) -> Observation {
        Observation { newest: Some(back(START, 24 * HOUR).wall), ..seen(reading) }
    }

    /// The wall clock is set this much further, and no time passes.
    fn ahead(reading: Reading, by: Duration) -> Reading {
        Reading { wall: reading.wall.after(by), ..reading }
    }

    fn back(reading: Reading, by: Duration) -> Reading {
        let millis = i64::try_from(by.as_millis()).expect("small");
        Reading { wall: Timestamp::from_millis(reading.wall.millis() - millis), ..reading }
    }

    /// A judge that has watched a synchronised clock.
    fn trusting() -> ClockJudge {
        let mut judge = ClockJudge::default();
        assert_eq!(judge.judge(&Observation { is_synchronised: true, ..seen(START) }), None);
        judge
    }

    fn is_held(change: Option<Change>, word: &str) -> bool {
        matches!(change, Some(Change::Held(hold)) if hold.reason.contains(word))
    }

    #[test]
    fn a_jump_over_a_minute_holds_in_either_direction() {
        let later = START.after(HOUR);
        let just = TOLERANCE + Duration::from_millis(1);
        assert!(is_held(trusting().judge(&seen(ahead(later, just))), "jumped ahead by 60 s"));
        assert!(is_held(trusting().judge(&seen(back(later, just))), "jumped back by 60 s"));
        for reading in [ahead(later, TOLERANCE), back(later, TOLERANCE), later] {
            assert_eq!(trusting().judge(&seen(reading)), None);
        }
    }

    #[test]
    fn a_suspended_machine_is_no_jump() {
        let mut judge = trusting();
        assert_eq!(judge.judge(&seen(START.after(Duration::from_hours(100)))), None);
        assert!(judge.held().is_none());
    }

    #[test]
    fn many_small_steps_add_up() {
        let mut judge = trusting();
        let changes: Vec<_> = (1..=4).map(|step| judge.judge(&seen(ahead(START, 20 * step * SECOND)))).collect();
        assert_eq!(changes[..3], [None, None, None]);
        assert!(is_held(changes[3].clone(), "jumped ahead by 80 s"));
    }

    #[test]
    fn a_clock_behind_the_catalog_holds() {
        let newest = |by| Observation { newest: Some(START.wall.after(by)), ..seen(START.after(SECOND)) };
        assert_eq!(trusting().judge(&newest(TOLERANCE)), None);
        let mut judge = trusting();
        assert!(is_held(judge.judge(&newest(HOUR)), "behind the newest time in the catalog"));
        assert_eq!(judge.judge(&newest(HOUR)), None, "it is told once");
        assert!(judge.held().is_some());
    }

    #[test]
    fn the_kernel_a_store_or_an_operator_ends_a_hold() {
        let jumped = ahead(START, HOUR);
        let held = || {
            let mut judge = trusting();
            assert!(is_held(judge.judge(&seen(jumped)), "ahead"));
            judge
        };
        let released = |mut judge: ClockJudge, seen: Observation| {
            let change = judge.judge(&seen);
            assert_eq!(judge.held().is_none(), matches!(change, Some(Change::Released(_))), "{change:?}");
            judge.held().is_none()
        };
        let later = seen(jumped.after(STEADY + HOUR));
        assert!(!released(held(), later), "no time is long enough");
        assert!(released(held(), Observation { is_synchronised: true, ..later }));
        assert!(released(held(), Observation { store: Some(later.reading.wall), ..later }));
        assert!(!released(held(), Observation { store: Some(START.wall), ..later }), "the store disagrees");
        let mut judge = held();
        assert!(judge.accept(&later).is_some_and(|hold| hold.reason.contains("ahead")));
        assert_eq!(judge.judge(&seen(later.reading.after(SECOND))), None, "what was accepted is the measure");
    }

    #[test]
    fn what_was_accepted_once_does_not_hold_again() {
        let behind = Observation { newest: Some(START.wall.after(HOUR)), ..seen(START.after(SECOND)) };
        let mut judge = trusting();
        assert!(is_held(judge.judge(&behind), "behind"));
        judge.accept(&behind);
        assert_eq!(judge.judge(&behind), None);
        let newer = Observation { newest: Some(START.wall.after(2 * HOUR)), ..behind };
        assert!(is_held(judge.judge(&newer), "behind"), "another time is another doubt");
    }

    #[test]
    fn an_unsynchronised_clock_at_the_start_holds_a_quarter_of_an_hour() {
        let mut judge = ClockJudge::default();
        assert!(is_held(judge.judge(&long_after(START)), "synchronised at the start"));
        assert_eq!(judge.judge(&long_after(START.after(Duration::from_secs(899)))), None);
        assert!(judge.held().is_some());
        assert!(matches!(judge.judge(&long_after(START.after(STEADY))), Some(Change::Released(_))));
        assert_eq!(judge.judge(&long_after(START.after(HOUR))), None, "only at the start");
    }

    #[test]
    fn an_unsynchronised_clock_is_trusted_after_a_short_stop_and_with_an_empty_catalog() {
        for newest in [None, Some(START.wall), Some(back(START, STEADY).wall)] {
            let mut judge = ClockJudge::default();
            assert_eq!(judge.judge(&Observation { newest, ..seen(START) }), None, "{newest:?}");
            assert!(is_held(judge.judge(&seen(ahead(START, HOUR))), "jumped"), "it is watched all the same");
        }
        let newest = Some(back(START, STEADY + SECOND).wall);
        assert!(is_held(ClockJudge::default().judge(&Observation { newest, ..seen(START) }), "synchronised"));
    }

    #[test]
    fn a_jump_in_the_first_quarter_of_an_hour_waits_for_a_witness() {
        let mut judge = ClockJudge::default();
        assert!(is_held(judge.judge(&long_after(START)), "synchronised"));
        assert!(is_held(judge.judge(&long_after(ahead(START.after(SECOND), HOUR))), "jumped"));
        assert_eq!(judge.judge(&long_after(ahead(START.after(2 * STEADY), HOUR))), None);
        assert!(judge.held().is_some());
    }

    #[test]
    fn the_date_of_a_store_goes_on_with_the_time_since_boot() {
        let store = StoreTime::default();
        assert_eq!(store.now(START.boot), None);
        store.note(START.wall, START.boot);
        assert_eq!(store.now(START.boot + HOUR), Some(START.wall.after(HOUR)));
        assert_eq!(store.now(START.boot + HOUR + SECOND), None, "it is too old");
    }
}
