//! When what was written ceases to exist, as far as anybody can know: its writer says for how long or until when, and
//! learns the moment with the answer.

use s3o_model::clock::Timestamp;
use s3o_model::expiry::Expiry;

use crate::model::Impossible;
use crate::sky::{Mark, Sky};

/// The end of one write.
#[derive(Debug, Clone)]
pub struct End {
    /// When its writer set out.
    since: Mark,
    asked: Expiry,
    /// What the writer was told.
    told: Option<Timestamp>,
}

impl End {
    /// The end of a write that sets out at this moment.
    pub fn new(since: Mark, asked: Expiry) -> Self {
        Self { since, asked, told: None }
    }

    /// The moment, if anybody knows it.
    fn moment(&self) -> Option<Timestamp> {
        self.told.or(self.asked.moment())
    }

    /// Nothing ends before this.
    fn earliest(&self, sky: &Sky) -> Timestamp {
        let live = self.asked.live().unwrap_or_default();
        self.moment().unwrap_or_else(|| sky.shown_since(self.since).start().after(live))
    }

    /// The writer was told when: that must be what it asked for.
    pub fn told(&mut self, moment: Timestamp, sky: &Sky) -> Result<(), Impossible> {
        let shown = sky.shown_since(self.since);
        let fits = match self.asked {
            Expiry::At(asked) => moment == asked,
            Expiry::After(live) => (shown.start().after(live)..=shown.end().after(live)).contains(&moment),
        };
        self.told = Some(moment);
        if fits { Ok(()) } else { Err(Impossible(format!("{:?} became {moment}", self.asked))) }
    }

    /// Whether whoever set out at `mark` may still have seen it.
    pub fn may_be_ahead(&self, mark: Mark, sky: &Sky) -> bool {
        self.moment().is_none_or(|moment| *sky.shown_since(mark).start() < moment)
    }

    /// Whether whoever set out at `mark` may have seen it no more.
    pub fn may_have_come(&self, mark: Mark, sky: &Sky) -> bool {
        self.earliest(sky) <= *sky.shown_since(mark).end()
    }

    /// Whether it may have come at all, so that the row may be gone. The clock may be back before it since.
    pub fn may_be_over(&self, sky: &Sky) -> bool {
        self.may_have_come(self.since, sky)
    }
}
