//! Writes of this process whose end is not known, so that each end is counted once, by the process that caused it.
//!
//! A write is in doubt if an answer of the catalog was lost. A later query decides: an intent that still exists is
//! counted when it ends, one that does not exist has ended as requested.

use std::collections::{BTreeMap, HashSet};

use parking_lot::{Mutex, MutexGuard};
use s3o_model::ids::WriteId;

/// Writes that are open or in doubt.
#[derive(Debug, Default)]
pub(super) struct OpenWrites(Mutex<OpenWritesState>);

#[derive(Debug, Default)]
struct OpenWritesState {
    /// Announced by this process and not known to have ended.
    open: HashSet<WriteId>,
    /// Claimed by the reaper of this process, which waits for the catalog's answer.
    resolving: HashSet<WriteId>,
    in_doubt: BTreeMap<WriteId, (u64, LostAnswer)>,
    /// Number of lost answers so far.
    lost_answers: u64,
}

/// A write, and the number of its lost answer: an answer that is lost later has another number.
pub(crate) type InDoubt = (WriteId, u64);

/// The operation whose answer was lost, with the status that the write has if it took effect.
#[derive(Debug, Clone, Copy)]
enum LostAnswer {
    Announce,
    /// This process ends its own write.
    End(&'static str),
    /// The reaper resolves a write that it claimed.
    Resolve(&'static str),
}

/// When an announcement is counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Counted {
    Now,
    Before,
}

/// What a lookup of a write in doubt found and the caller counts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LookupResult {
    /// True if the write was announced.
    pub announced: bool,
    /// The status with which the write ended.
    pub ended: Option<&'static str>,
}

impl OpenWritesState {
    fn add_in_doubt(&mut self, write: WriteId, lost: LostAnswer) {
        self.lost_answers += 1;
        self.in_doubt.insert(write, (self.lost_answers, lost));
    }
}

impl OpenWrites {
    fn state(&self) -> MutexGuard<'_, OpenWritesState> {
        self.0.lock()
    }

    pub(super) fn announced(&self, write: WriteId) {
        self.state().open.insert(write);
    }

    pub(super) fn maybe_announced(&self, write: WriteId) {
        self.state().add_in_doubt(write, LostAnswer::Announce);
    }

    /// Returns true if the write was open, so that its end is counted once.
    pub(super) fn ended(&self, write: WriteId) -> bool {
        self.state().open.remove(&write)
    }

    /// A write that is no longer open was claimed by the reaper, which counts its end.
    pub(super) fn in_doubt(&self, write: WriteId, status: &'static str) {
        let mut state = self.state();
        if state.open.contains(&write) {
            state.add_in_doubt(write, LostAnswer::End(status));
        }
    }

    /// The reaper has read the row of this write, so a lost answer to its announcement was a success.
    pub(super) fn resolving(&self, write: WriteId) -> Counted {
        let mut state = self.state();
        state.resolving.insert(write);
        match state.in_doubt.remove(&write) {
            Some((_, LostAnswer::Announce)) => Counted::Now,
            Some((_, LostAnswer::End(_) | LostAnswer::Resolve(_))) | None => Counted::Before,
        }
    }

    pub(super) fn resolved(&self, write: WriteId) {
        let mut state = self.state();
        state.resolving.remove(&write);
        state.open.remove(&write);
        state.in_doubt.remove(&write);
    }

    pub(super) fn not_resolved(&self, write: WriteId) {
        self.state().resolving.remove(&write);
    }

    pub(super) fn unanswered(&self, write: WriteId, status: &'static str) {
        let mut state = self.state();
        state.resolving.remove(&write);
        state.open.remove(&write);
        state.add_in_doubt(write, LostAnswer::Resolve(status));
    }

    pub(super) fn all_in_doubt(&self) -> Vec<InDoubt> {
        self.state().in_doubt.iter().map(|(write, (number, _))| (*write, *number)).collect()
    }

    /// Resolves a write by a lookup that started after its answer was lost. A write that the reaper is resolving is
    /// left to the reaper.
    pub(super) fn queried(&self, (write, number): InDoubt, is_open: bool) -> LookupResult {
        let mut state = self.state();
        let is_same = state.in_doubt.get(&write).is_some_and(|(latest, _)| *latest == number);
        if !is_same || state.resolving.contains(&write) {
            return LookupResult::default();
        }
        match state.in_doubt.remove(&write).map(|(_, lost)| lost) {
            Some(LostAnswer::Announce) => LookupResult { announced: is_open, ended: None },
            Some(LostAnswer::End(status)) => {
                let first = state.open.remove(&write);
                LookupResult { announced: false, ended: (first && !is_open).then_some(status) }
            }
            Some(LostAnswer::Resolve(status)) => LookupResult { announced: false, ended: (!is_open).then_some(status) },
            None => LookupResult::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use s3o_model::ids::WriteId;

    use super::{Counted, LookupResult, OpenWrites};

    fn write() -> WriteId {
        WriteId::new(uuid::Uuid::from_u128(7))
    }

    fn first_lookup(writes: &OpenWrites, is_open: bool) -> LookupResult {
        let in_doubt = writes.all_in_doubt();
        in_doubt.into_iter().next().map_or_else(LookupResult::default, |first| writes.queried(first, is_open))
    }

    fn ended(status: &'static str) -> LookupResult {
        LookupResult { announced: false, ended: Some(status) }
    }

    #[test]
    fn write_in_doubt_without_intent_has_ended_as_requested() {
        let writes = OpenWrites::default();
        writes.announced(write());
        writes.in_doubt(write(), "committed");
        assert_eq!(writes.all_in_doubt(), [(write(), 1)]);
        assert_eq!(first_lookup(&writes, false), ended("committed"));
        assert!(!writes.ended(write()), "its end was counted");
    }

    #[test]
    fn write_in_doubt_with_intent_is_counted_by_the_reaper() {
        let writes = OpenWrites::default();
        writes.announced(write());
        writes.in_doubt(write(), "committed");
        assert_eq!(first_lookup(&writes, true), LookupResult::default());
        assert_eq!(writes.resolving(write()), Counted::Before);
        writes.resolved(write());
        writes.in_doubt(write(), "committed");
        assert!(writes.all_in_doubt().is_empty(), "the reaper has counted it");
    }

    #[test]
    fn write_that_the_reaper_resolves_is_not_resolved_by_a_lookup() {
        let writes = OpenWrites::default();
        writes.announced(write());
        assert_eq!(writes.resolving(write()), Counted::Before);
        writes.in_doubt(write(), "committed");
        assert_eq!(first_lookup(&writes, false), LookupResult::default());
        writes.resolved(write());
        assert_eq!(first_lookup(&writes, false), LookupResult::default());
    }

    #[test]
    fn announcement_in_doubt_is_counted_if_the_intent_exists() {
        let writes = OpenWrites::default();
        writes.maybe_announced(write());
        assert_eq!(first_lookup(&writes, true), LookupResult { announced: true, ended: None });
        writes.maybe_announced(write());
        assert_eq!(first_lookup(&writes, false), LookupResult::default());
        writes.maybe_announced(write());
        assert_eq!(writes.resolving(write()), Counted::Now);
    }

    #[test]
    fn unanswered_resolution_of_the_reaper_is_queried() {
        let writes = OpenWrites::default();
        for (is_open, settled) in [(true, LookupResult::default()), (false, ended("dropped"))] {
            assert_eq!(writes.resolving(write()), Counted::Before);
            writes.unanswered(write(), "dropped");
            assert_eq!(first_lookup(&writes, is_open), settled);
        }
    }

    #[test]
    fn lookup_resolves_no_answer_that_was_lost_after_it_started() {
        let writes = OpenWrites::default();
        writes.maybe_announced(write());
        let before = writes.all_in_doubt()[0];
        assert_eq!(writes.resolving(write()), Counted::Now);
        writes.unanswered(write(), "dropped");
        assert_eq!(writes.queried(before, true), LookupResult::default());
        assert_eq!(first_lookup(&writes, false), ended("dropped"));
    }
}
