//! When an object expires, as far as clients can know: a write asks for a duration or a time, and its answer contains
//! the time.

use s3o_model::clock::Timestamp;
use s3o_model::expiry::Expiry;

use crate::clock::{ClockMark, SimulatedClock};
use crate::model::Contradiction;

/// The expiry of one write.
#[derive(Debug, Clone)]
pub struct ExpiryModel {
    /// The start of the write.
    since: ClockMark,
    requested: Expiry,
    /// From the answer to the write.
    confirmed: Option<Timestamp>,
}

impl ExpiryModel {
    pub fn new(since: ClockMark, requested: Expiry) -> Self {
        Self { since, requested, confirmed: None }
    }

    /// None while only the server knows it.
    fn moment(&self) -> Option<Timestamp> {
        self.confirmed.or(self.requested.moment())
    }

    /// A lower bound of the expiry.
    fn earliest(&self, clock: &SimulatedClock) -> Timestamp {
        let lifetime = self.requested.live().unwrap_or_default();
        self.moment().unwrap_or_else(|| clock.range_since(self.since).start().after(lifetime))
    }

    /// Takes the expiry from the answer, which must be what the write asked for.
    pub fn confirm(&mut self, moment: Timestamp, clock: &SimulatedClock) -> Result<(), Contradiction> {
        let range = clock.range_since(self.since);
        let fits = match self.requested {
            Expiry::At(requested) => moment == requested,
            Expiry::After(lifetime) => (range.start().after(lifetime)..=range.end().after(lifetime)).contains(&moment),
        };
        self.confirmed = Some(moment);
        if fits { Ok(()) } else { Err(Contradiction(format!("{:?} was answered with {moment}", self.requested))) }
    }

    /// Whether a request that started at the mark may have seen the object.
    pub fn may_be_after(&self, mark: ClockMark, clock: &SimulatedClock) -> bool {
        self.moment().is_none_or(|moment| *clock.range_since(mark).start() < moment)
    }

    /// Whether a request that started at the mark may have seen the object as expired.
    pub fn may_be_before_end_of(&self, mark: ClockMark, clock: &SimulatedClock) -> bool {
        self.earliest(clock) <= *clock.range_since(mark).end()
    }

    /// Whether the expiry may have passed at any time so far, so that the row may be deleted. The clock may have jumped
    /// back since.
    pub fn may_have_passed(&self, clock: &SimulatedClock) -> bool {
        self.may_be_before_end_of(self.since, clock)
    }
}
