//! Decides if time-dependent deletions must wait because the wall clock is not trusted.
//!
//! The wall clock can be set; the time since boot cannot, and it includes suspended time. Slewing affects both alike,
//! so only a step of the wall clock makes them differ. A leap second is far below the tolerance.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Reading, Timestamp};

/// Largest tolerated step of the wall clock, or lag behind the catalog.
pub const TOLERANCE: Duration = Duration::from_mins(1);
/// How long a clock that was not synchronised at the start must run without a step; also the largest age of the newest
/// time in the catalog for such a clock to be trusted immediately.
pub const STEADY: Duration = Duration::from_mins(15);
/// How long a date from a store is used.
const STORE_DATE_MAX_AGE: Duration = Duration::from_hours(1);

/// The last `Date` header of a store, with the time since boot at which it arrived.
#[derive(Debug, Default)]
pub struct StoreTime(Mutex<Option<(Timestamp, Duration)>>);

/// All information about the clock at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// Both clocks.
    pub reading: Reading,
    /// True if the kernel reports the wall clock as synchronised.
    pub is_synchronised: bool,
    /// Current time of a store's clock, extrapolated from its last date.
    pub store: Option<Timestamp>,
    /// The newest time in the catalog.
    pub newest: Option<Timestamp>,
}

/// Why time-dependent deletions wait, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Reason, for logs and the status.
    pub reason: String,
    /// Start of the hold, by the untrusted wall clock.
    pub since: Timestamp,
}

/// What an observation changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClockChange {
    /// A hold started, or its reason changed.
    Held(Hold),
    /// The hold ended, for this reason.
    Released(&'static str),
}

/// Decides from successive observations whether the wall clock is trusted.
#[derive(Debug, Default)]
pub struct ClockJudge {
    /// The last reading that was trusted, or the first one.
    anchor: Option<Reading>,
    held: Option<ActiveHold>,
    /// Times in the catalog up to this one cause no hold: a released hold covered them.
    ignored_until: Option<Timestamp>,
}

#[derive(Debug)]
struct ActiveHold {
    hold: Hold,
    /// If set, the hold ends after `STEADY` without a step since this time.
    steady_since: Option<Duration>,
}

impl StoreTime {
    /// Records a date that a store sent.
    pub fn note(&self, date: Timestamp, boot: Duration) {
        *self.0.lock() = Some((date, boot));
    }

    /// Current time of the store's clock; `None` if its last date is too old.
    #[must_use]
    pub fn now(&self, boot: Duration) -> Option<Timestamp> {
        let (date, then) = (*self.0.lock())?;
        let age = boot.checked_sub(then).filter(|age| *age <= STORE_DATE_MAX_AGE)?;
        Some(date.after(age))
    }
}

impl ClockJudge {
    /// Evaluates an observation; returns the change, if any.
    pub fn judge(&mut self, seen: &Observation) -> Option<ClockChange> {
        if let Some(source) = confirmed_by(seen) {
            return self.release(seen).map(|_| ClockChange::Released(source));
        }
        let is_first = self.anchor.is_none();
        let anchor = *self.anchor.get_or_insert(seen.reading);
        if let Some(reason) = jumped(anchor, seen.reading) {
            self.anchor = Some(seen.reading);
            return Some(self.hold(reason, seen, None));
        }
        let needs_confirmation = self.held.as_ref().is_some_and(|held| held.steady_since.is_none());
        match self.behind(seen) {
            Some(_) if needs_confirmation => None,
            Some(reason) => Some(self.hold(reason, seen, None)),
            None if is_first && may_be_ahead(seen) => {
                let reason = "the kernel did not report the clock as synchronised at the start".to_owned();
                Some(self.hold(reason, seen, Some(seen.reading.boot)))
            }
            None => self.release_if_steady(seen),
        }
    }

    /// Trusts the clock at the operator's request; returns the hold that this ended.
    pub fn accept(&mut self, seen: &Observation) -> Option<Hold> {
        self.release(seen)
    }

    /// The current hold.
    #[must_use]
    pub fn held(&self) -> Option<&Hold> {
        self.held.as_ref().map(|held| &held.hold)
    }

    fn hold(&mut self, reason: String, seen: &Observation, steady_since: Option<Duration>) -> ClockChange {
        let hold = Hold { reason, since: seen.reading.wall };
        self.held = Some(ActiveHold { hold: hold.clone(), steady_since });
        ClockChange::Held(hold)
    }

    fn release(&mut self, seen: &Observation) -> Option<Hold> {
        self.anchor = Some(seen.reading);
        self.ignored_until = self.ignored_until.max(seen.newest);
        self.held.take().map(|held| held.hold)
    }

    fn release_if_steady(&mut self, seen: &Observation) -> Option<ClockChange> {
        let since = self.held.as_ref()?.steady_since?;
        if seen.reading.boot.saturating_sub(since) < STEADY {
            return None;
        }
        self.release(seen).map(|_| ClockChange::Released("the clock ran without a step for 15 minutes"))
    }

    fn behind(&self, seen: &Observation) -> Option<String> {
        let newest = seen.newest.filter(|newest| self.ignored_until.is_none_or(|until| *newest > until))?;
        let by = newest.since(seen.reading.wall);
        (by > TOLERANCE)
            .then(|| format!("the clock is {} s behind the newest time in the catalog, {newest}", by.as_secs()))
    }
}

/// True if an unconfirmed clock may be too far ahead of the clock that wrote the rows in the catalog. It is ahead by
/// at most the time since the newest time there, and an empty catalog has no rows that could expire too early.
fn may_be_ahead(seen: &Observation) -> bool {
    seen.newest.is_some_and(|newest| seen.reading.wall.since(newest) > STEADY)
}

/// The source that confirms the wall clock, if any.
fn confirmed_by(seen: &Observation) -> Option<&'static str> {
    let agrees = |store| is_near(store, seen.reading.wall);
    if seen.is_synchronised {
        Some("the kernel reports the clock as synchronised")
    } else if seen.store.is_some_and(agrees) {
        Some("the date of a store agrees with the clock")
    } else {
        None
    }
}

fn is_near(one: Timestamp, other: Timestamp) -> bool {
    one.since(other) <= TOLERANCE && other.since(one) <= TOLERANCE
}

/// The step of the wall clock since the anchor, if it exceeds the tolerance.
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
mod tests;
