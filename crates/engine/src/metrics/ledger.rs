//! Writes of this process without a known end, so that each end is counted once, by the process that caused it.
//!
//! An answer of the catalog that was lost leaves a doubt: a look at the rows settles it. An intent that is still there
//! will be counted when it ends; one that is gone has ended as it was meant to.

use std::collections::{BTreeMap, HashSet};

use parking_lot::{Mutex, MutexGuard};
use s3o_model::ids::WriteId;

/// What this process does not know.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Announced by this process and not known to have ended.
    open: HashSet<WriteId>,
    /// Claimed by the reaper of this process, which waits for the catalog's answer.
    resolving: HashSet<WriteId>,
    doubts: BTreeMap<WriteId, (u64, Doubt)>,
    /// How many doubts there have been.
    raised: u64,
}

/// A doubt as a look finds it; the next doubt about the same write is another one.
pub(crate) type Doubtful = (WriteId, u64);

/// Which answer was lost.
#[derive(Debug, Clone, Copy)]
enum Doubt {
    /// The one to an announcement.
    Announced,
    /// The one to what ends a write of this process.
    Ended(&'static str),
    /// The one to what the reaper did.
    Resolved(&'static str),
}

/// Whether an announcement is counted now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Now,
    Before,
}

/// What a look at the rows made certain.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// The write was announced, and that is not counted yet.
    pub announced: bool,
    /// The write ended with this status, and that is not counted yet.
    pub ended: Option<&'static str>,
}

impl State {
    fn doubt(&mut self, write: WriteId, doubt: Doubt) {
        self.raised += 1;
        self.doubts.insert(write, (self.raised, doubt));
    }
}

impl Ledger {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    pub(super) fn announced(&self, write: WriteId) {
        self.state().open.insert(write);
    }

    pub(super) fn maybe_announced(&self, write: WriteId) {
        self.state().doubt(write, Doubt::Announced);
    }

    /// Says whether this end is the first that is known of.
    pub(super) fn ended(&self, write: WriteId) -> bool {
        self.state().open.remove(&write)
    }

    /// What the reaper has taken, the reaper counts.
    pub(super) fn in_doubt(&self, write: WriteId, status: &'static str) {
        let mut state = self.state();
        if state.open.contains(&write) {
            state.doubt(write, Doubt::Ended(status));
        }
    }

    /// The reaper has the row of this write before it, so the row was written.
    pub(super) fn resolving(&self, write: WriteId) -> Counted {
        let mut state = self.state();
        state.resolving.insert(write);
        match state.doubts.remove(&write) {
            Some((_, Doubt::Announced)) => Counted::Now,
            Some((_, Doubt::Ended(_) | Doubt::Resolved(_))) | None => Counted::Before,
        }
    }

    pub(super) fn resolved(&self, write: WriteId) {
        let mut state = self.state();
        state.resolving.remove(&write);
        state.open.remove(&write);
        state.doubts.remove(&write);
    }

    pub(super) fn not_resolved(&self, write: WriteId) {
        self.state().resolving.remove(&write);
    }

    pub(super) fn unanswered(&self, write: WriteId, status: &'static str) {
        let mut state = self.state();
        state.resolving.remove(&write);
        state.open.remove(&write);
        state.doubt(write, Doubt::Resolved(status));
    }

    pub(super) fn doubtful(&self) -> Vec<Doubtful> {
        self.state().doubts.iter().map(|(write, (number, _))| (*write, *number)).collect()
    }

    /// Settles a doubt by a look that began after it arose. What the reaper works on is settled by the reaper.
    pub(super) fn looked_up(&self, (write, number): Doubtful, is_open: bool) -> Settled {
        let mut state = self.state();
        let is_same = state.doubts.get(&write).is_some_and(|(latest, _)| *latest == number);
        if !is_same || state.resolving.contains(&write) {
            return Settled::default();
        }
        match state.doubts.remove(&write).map(|(_, doubt)| doubt) {
            Some(Doubt::Announced) => Settled { announced: is_open, ended: None },
            Some(Doubt::Ended(status)) => {
                let first = state.open.remove(&write);
                Settled { announced: false, ended: (first && !is_open).then_some(status) }
            }
            Some(Doubt::Resolved(status)) => Settled { announced: false, ended: (!is_open).then_some(status) },
            None => Settled::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use s3o_model::ids::WriteId;

    use super::{Counted, Ledger, Settled};

    fn write() -> WriteId {
        WriteId::new(uuid::Uuid::from_u128(7))
    }

    fn look(ledger: &Ledger, is_open: bool) -> Settled {
        let doubtful = ledger.doubtful();
        doubtful.into_iter().next().map_or_else(Settled::default, |doubt| ledger.looked_up(doubt, is_open))
    }

    fn ended(status: &'static str) -> Settled {
        Settled { announced: false, ended: Some(status) }
    }

    #[test]
    fn a_write_whose_intent_is_gone_has_ended_as_it_was_meant_to() {
        let ledger = Ledger::default();
        ledger.announced(write());
        ledger.in_doubt(write(), "committed");
        assert_eq!(ledger.doubtful(), [(write(), 1)]);
        assert_eq!(look(&ledger, false), ended("committed"));
        assert!(!ledger.ended(write()), "it was counted");
    }

    #[test]
    fn a_write_whose_intent_is_there_is_counted_by_the_reaper() {
        let ledger = Ledger::default();
        ledger.announced(write());
        ledger.in_doubt(write(), "committed");
        assert_eq!(look(&ledger, true), Settled::default());
        assert_eq!(ledger.resolving(write()), Counted::Before);
        ledger.resolved(write());
        ledger.in_doubt(write(), "committed");
        assert!(ledger.doubtful().is_empty(), "the reaper has counted it");
    }

    #[test]
    fn a_doubt_that_the_reaper_works_on_waits_for_it() {
        let ledger = Ledger::default();
        ledger.announced(write());
        assert_eq!(ledger.resolving(write()), Counted::Before);
        ledger.in_doubt(write(), "committed");
        assert_eq!(look(&ledger, false), Settled::default());
        ledger.resolved(write());
        assert_eq!(look(&ledger, false), Settled::default());
    }

    #[test]
    fn an_announcement_in_doubt_is_counted_if_there_is_an_intent() {
        let ledger = Ledger::default();
        ledger.maybe_announced(write());
        assert_eq!(look(&ledger, true), Settled { announced: true, ended: None });
        ledger.maybe_announced(write());
        assert_eq!(look(&ledger, false), Settled::default());
        ledger.maybe_announced(write());
        assert_eq!(ledger.resolving(write()), Counted::Now);
    }

    #[test]
    fn what_the_reaper_did_without_an_answer_is_looked_up() {
        let ledger = Ledger::default();
        for (is_open, settled) in [(true, Settled::default()), (false, ended("dropped"))] {
            assert_eq!(ledger.resolving(write()), Counted::Before);
            ledger.unanswered(write(), "dropped");
            assert_eq!(look(&ledger, is_open), settled);
        }
    }

    #[test]
    fn a_look_settles_no_doubt_that_arose_after_it() {
        let ledger = Ledger::default();
        ledger.maybe_announced(write());
        let before = ledger.doubtful()[0];
        assert_eq!(ledger.resolving(write()), Counted::Now);
        ledger.unanswered(write(), "dropped");
        assert_eq!(ledger.looked_up(before, true), Settled::default());
        assert_eq!(look(&ledger, false), ended("dropped"));
    }
}
