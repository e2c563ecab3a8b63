//! The reference model: for each key, every state that the answers so far allow.
//!
//! A request that was not answered yet may take effect at any moment between its start and its
//! end. So a key is not in one state but in several possible ones, each with the open requests
//! that have taken effect in it. An answer throws away the states that it contradicts; when none
//! is left, nothing that a correct store could have done explains what clients saw.

use std::collections::{BTreeMap, BTreeSet};

/// A body, by its place in [`crate::bodies::Bodies`].
pub type Body = usize;
/// What a key holds.
pub type Value = Option<Body>;
/// One request on one key.
pub type Request = u64;

/// Whether the reaper may finish an unacknowledged PUT that declared a digest, after its lease
/// ran out and as long as nothing superseded it (`recovery: promote`).
pub const REAPER_PROMOTES: bool = true;

/// When a write may take effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Always,
    IfAbsent,
    IfMatch(Body),
}

impl Condition {
    /// Whether it holds where this is.
    pub fn holds(&self, value: Value) -> bool {
        match self {
            Self::Always => true,
            Self::IfAbsent => value.is_none(),
            Self::IfMatch(body) => value == Some(*body),
        }
    }
}

/// What a request may do to a key.
#[derive(Debug, Clone)]
enum Open {
    /// Sees what is there.
    Read,
    /// Puts one of these there; a copy does not know which before it is answered.
    Write { values: BTreeSet<Value>, condition: Condition, promotable: bool },
    /// A write whose owner is gone: the reaper may promote it until another write takes effect.
    Abandoned { values: BTreeSet<Value>, condition: Condition },
    /// A rule that removes whatever is there, at any moment, as often as it finds something.
    Removal,
}

/// One possible state: what is there, and what the open requests that took effect saw or wrote.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    value: Value,
    done: BTreeMap<Request, Value>,
}

/// Everything that may be true of one key.
#[derive(Debug)]
pub struct Key {
    states: BTreeSet<State>,
    open: BTreeMap<Request, Open>,
}

impl Default for Key {
    fn default() -> Self {
        Self { states: BTreeSet::from([State { value: None, done: BTreeMap::new() }]), open: BTreeMap::new() }
    }
}

/// What no correct store can have done.
#[derive(Debug, PartialEq, Eq)]
pub struct Impossible(pub String);

impl Key {
    /// A reader sets out.
    pub fn start_read(&mut self, request: Request) {
        self.open.insert(request, Open::Read);
    }

    /// A writer sets out; `promotable` if it declared a digest.
    pub fn start_write(&mut self, request: Request, values: BTreeSet<Value>, condition: Condition, promotable: bool) {
        self.open.insert(request, Open::Write { values, condition, promotable });
    }

    /// A rule comes into force.
    pub fn start_removal(&mut self, request: Request) {
        self.open.insert(request, Open::Removal);
    }

    /// An open copy may find this at its source, too.
    pub fn may_also_write(&mut self, request: Request, more: &BTreeSet<Value>) {
        if let Some(Open::Write { values, .. }) = self.open.get_mut(&request) {
            values.extend(more.iter().copied());
        }
    }

    /// What may be there now or once the open writes took effect.
    pub fn possible(&self) -> BTreeSet<Value> {
        let written = self.open.values().filter_map(|open| match open {
            Open::Write { values, .. } | Open::Abandoned { values, .. } => Some(values),
            Open::Read | Open::Removal => None,
        });
        self.states.iter().map(|state| state.value).chain(written.flatten().copied()).collect()
    }

    /// Whether a write is under way.
    pub fn is_changing(&self) -> bool {
        self.open.values().any(|open| !matches!(open, Open::Read))
    }

    /// The request was answered, and saw or wrote something that fits; what that may have been is
    /// returned.
    pub fn answered(&mut self, request: Request, fits: impl Fn(Value) -> bool) -> Result<BTreeSet<Value>, Impossible> {
        self.keep(request, |done| done.is_some_and(&fits))
    }

    /// The request was answered: it has no effect.
    pub fn refused(&mut self, request: Request) -> Result<(), Impossible> {
        self.keep(request, |done| done.is_none()).map(drop)
    }

    /// Nobody will ever know whether the request took effect before this moment. From now on it
    /// cannot, unless the reaper promotes it.
    pub fn lost(&mut self, request: Request) {
        self.spread();
        if let Some(Open::Write { values, condition, promotable: true }) = self.open.get(&request).cloned()
            && REAPER_PROMOTES
        {
            self.open.insert(request, Open::Abandoned { values, condition });
            return;
        }
        self.forget(request);
    }

    /// Keeps the states in which the request came to this, and closes it.
    fn keep(&mut self, request: Request, fits: impl Fn(Option<Value>) -> bool) -> Result<BTreeSet<Value>, Impossible> {
        self.spread();
        let allowed: BTreeSet<Value> = self.states.iter().map(|state| state.value).collect();
        self.states.retain(|state| fits(state.done.get(&request).copied()));
        let seen = self.states.iter().filter_map(|state| state.done.get(&request).copied()).collect();
        self.forget(request);
        if self.states.is_empty() {
            return Err(Impossible(format!("only {allowed:?} was possible")));
        }
        Ok(seen)
    }

    fn forget(&mut self, request: Request) {
        self.open.remove(&request);
        let states = std::mem::take(&mut self.states);
        self.states = states
            .into_iter()
            .map(|mut state| {
                state.done.remove(&request);
                state
            })
            .collect();
        self.forget_superseded();
    }

    /// Lets every open request take effect in every state in which it can, in any order.
    fn spread(&mut self) {
        let mut fresh: Vec<State> = self.states.iter().cloned().collect();
        while let Some(state) = fresh.pop() {
            for (request, open) in self.open.iter().filter(|(request, _)| !state.done.contains_key(request)) {
                for next in self.after(&state, *request, open) {
                    if self.states.insert(next.clone()) {
                        fresh.push(next);
                    }
                }
            }
        }
    }

    fn after(&self, state: &State, request: Request, open: &Open) -> Vec<State> {
        let (values, condition) = match open {
            Open::Read => {
                let mut next = state.clone();
                next.done.insert(request, state.value);
                return vec![next];
            }
            // It is not done with the first: what is written later may go, too.
            Open::Removal if state.value.is_some() => return vec![self.written(state, None)],
            Open::Removal => return Vec::new(),
            Open::Write { values, condition, .. } | Open::Abandoned { values, condition } => (values, condition),
        };
        if !condition.holds(state.value) {
            return Vec::new();
        }
        let written = values.iter().map(|value| {
            let mut next = self.written(state, *value);
            next.done.insert(request, *value);
            next
        });
        written.collect()
    }

    /// The state once this is there. Whatever was abandoned before is superseded by it.
    fn written(&self, state: &State, value: Value) -> State {
        let mut next = State { value, done: state.done.clone() };
        for (other, open) in &self.open {
            if let Open::Abandoned { .. } = open {
                next.done.entry(*other).or_insert(None);
            }
        }
        next
    }

    /// An abandoned write that is over in every state is over.
    fn forget_superseded(&mut self) {
        let is_over = |request: &Request| self.states.iter().all(|state| state.done.contains_key(request));
        let abandoned = self.open.iter().filter(|(_, open)| matches!(open, Open::Abandoned { .. }));
        let over: Vec<Request> = abandoned.map(|(request, _)| *request).filter(is_over).collect();
        for request in over {
            self.forget(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Condition, Key, REAPER_PROMOTES, Value};

    fn write(key: &mut Key, request: u64, value: Value) {
        key.start_write(request, BTreeSet::from([value]), Condition::Always, true);
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
        let mut key = Key::default();
        put(&mut key, 1, Some(7));
        assert!(sees(&mut key, 2, Some(7)));
        assert!(!sees(&mut key, 3, None));
    }

    #[test]
    fn a_read_beside_a_write_may_see_both_but_never_goes_back() {
        let mut key = Key::default();
        put(&mut key, 1, Some(1));
        write(&mut key, 2, Some(2));
        assert!(sees(&mut key, 3, Some(1)));
        assert!(sees(&mut key, 4, Some(2)));
        assert!(!sees(&mut key, 5, Some(1)));
    }

    #[test]
    fn a_slow_read_may_see_what_was_there_when_it_began() {
        let mut key = Key::default();
        put(&mut key, 1, Some(1));
        key.start_read(2);
        put(&mut key, 3, Some(2));
        assert!(key.answered(2, |seen| seen == Some(1)).is_ok());
        assert!(!sees(&mut key, 4, Some(1)));
    }

    #[test]
    fn a_lost_write_is_settled_by_the_first_read() {
        let mut key = Key::default();
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
        let mut key = Key::default();
        write(&mut key, 1, Some(1));
        key.lost(1);
        put(&mut key, 2, Some(2));
        assert!(!sees(&mut key, 3, Some(1)));
    }

    #[test]
    fn a_rule_removes_as_often_as_it_likes_until_it_ends() {
        let mut key = Key::default();
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
        let mut key = Key::default();
        for request in [1, 2] {
            key.start_write(request, BTreeSet::from([Some(1)]), Condition::IfAbsent, false);
        }
        assert!(key.answered(1, |_| true).is_ok());
        assert!(key.answered(2, |_| true).is_err());
    }

    #[test]
    fn what_was_refused_is_never_seen() {
        let mut key = Key::default();
        write(&mut key, 1, Some(1));
        key.refused(1).expect("possible");
        assert!(!sees(&mut key, 2, Some(1)));
    }
}
