//! The reference model: for each key, every state that the answers so far allow.
//!
//! A request that was not answered yet may take effect at any moment between its start and its
//! end. So a key is not in one state but in several possible ones, each with the open requests
//! that have taken effect in it. An answer throws away the states that it contradicts; when none
//! is left, nothing that a correct store could have done explains what clients saw.
//!
//! What expires is there or not by the clock alone: each request sees it as the clock stood at some moment between its
//! start and its end, and from the moment of its expiry on its row may be removed at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use s3o_model::clock::Timestamp;
use s3o_model::expiry::Expiry;

use crate::expiries::End;
use crate::sky::{Mark, Sky};

/// A body, by its place in [`crate::bodies::Bodies`].
pub type Body = usize;
/// What a key shows.
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

/// A write that sets out.
#[derive(Debug, Clone)]
pub struct Write {
    /// It puts one of these there; a copy does not know which before it is answered.
    pub values: BTreeSet<Value>,
    pub condition: Condition,
    /// Whether it declared a digest.
    pub declared: bool,
    /// When what it writes ceases to exist.
    pub expiry: Option<Expiry>,
}

impl Write {
    /// One of this, which stays.
    pub fn of(value: Value, condition: Condition) -> Self {
        Self { values: BTreeSet::from([value]), condition, declared: false, expiry: None }
    }
}

/// What a request may do to a key.
#[derive(Debug, Clone)]
enum Open {
    /// Sees what is there.
    Read,
    /// Writes; the end of what it writes is the one of this number.
    Write(Write, Option<usize>),
    /// A write whose owner is gone: the reaper may promote it until another write takes effect.
    Abandoned(Write, Option<usize>),
    /// A rule that removes whatever is there, at any moment, as often as it finds something.
    Removal,
}

/// What the row of a key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    body: Body,
    /// The number of its end, if it has one.
    end: Option<usize>,
}

/// One possible state: what is there, and what the open requests that took effect saw or wrote.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    held: Option<Held>,
    done: BTreeMap<Request, Value>,
}

/// Everything that may be true of one key.
pub struct Key {
    states: BTreeSet<State>,
    /// What is under way, and when it set out.
    open: BTreeMap<Request, (Mark, Open)>,
    ends: Vec<End>,
    sky: Arc<Sky>,
}

/// What no correct store can have done.
#[derive(Debug, PartialEq, Eq)]
pub struct Impossible(pub String);

impl Key {
    /// A key that holds nothing.
    pub fn new(sky: Arc<Sky>) -> Self {
        let states = BTreeSet::from([State { held: None, done: BTreeMap::new() }]);
        Self { states, open: BTreeMap::new(), ends: Vec::new(), sky }
    }

    fn start(&mut self, request: Request, what: Open) {
        self.open.insert(request, (self.sky.mark(), what));
    }

    /// A reader sets out.
    pub fn start_read(&mut self, request: Request) {
        self.start(request, Open::Read);
    }

    /// A writer sets out.
    pub fn start_write(&mut self, request: Request, write: Write) {
        let end = write.expiry.map(|expiry| {
            self.ends.push(End::new(self.sky.mark(), expiry));
            self.ends.len() - 1
        });
        self.start(request, Open::Write(write, end));
    }

    /// A rule comes into force.
    pub fn start_removal(&mut self, request: Request) {
        self.start(request, Open::Removal);
    }

    /// An open copy may find this at its source, too.
    pub fn may_also_write(&mut self, request: Request, more: &BTreeSet<Value>) {
        if let Some((_, Open::Write(write, _))) = self.open.get_mut(&request) {
            write.values.extend(more.iter().copied());
        }
    }

    /// A writer is told when what it wrote ceases to exist.
    pub fn told(&mut self, request: Request, moment: Timestamp) -> Result<(), Impossible> {
        match self.open.get(&request) {
            Some((_, Open::Write(_, Some(end)))) => self.ends[*end].told(moment, &self.sky),
            _ => Err(Impossible(format!("nobody asked for an end at {moment}"))),
        }
    }

    /// What may be there now or once the open writes took effect.
    pub fn possible(&self) -> BTreeSet<Value> {
        let written = self.open.values().filter_map(|open| match open {
            (_, Open::Write(write, _) | Open::Abandoned(write, _)) => Some(&write.values),
            (_, Open::Read | Open::Removal) => None,
        });
        self.values().chain(written.flatten().copied()).collect()
    }

    /// What the row may hold.
    fn values(&self) -> impl Iterator<Item = Value> {
        self.states.iter().map(|state| state.held.map(|held| held.body))
    }

    /// Whether a write is under way, or what is there may be removed since it has expired.
    pub fn is_changing(&self) -> bool {
        let is_writing = self.open.values().any(|(_, open)| !matches!(open, Open::Read));
        is_writing || self.states.iter().any(|state| self.may_be_over(state))
    }

    /// Whether what is there may have expired.
    fn may_be_over(&self, state: &State) -> bool {
        self.end_of(state.held).is_some_and(|end| end.may_be_over(&self.sky))
    }

    fn end_of(&self, held: Option<Held>) -> Option<&End> {
        held?.end.map(|end| &self.ends[end])
    }

    /// What somebody who set out then may have seen.
    fn shown(&self, held: Option<Held>, since: Mark) -> impl Iterator<Item = Value> {
        let body = held.map(|held| held.body);
        let (there, gone) = match self.end_of(held) {
            Some(end) => (end.may_be_ahead(since, &self.sky), end.may_have_come(since, &self.sky)),
            None => (true, false),
        };
        there.then_some(body).into_iter().chain(gone.then_some(None))
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
        if let Some((_, open)) = self.open.get_mut(&request)
            && let Open::Write(write, end) = open
            && write.declared
            && REAPER_PROMOTES
        {
            *open = Open::Abandoned(write.clone(), *end);
            return;
        }
        self.forget(request);
    }

    /// Keeps the states in which the request came to this, and closes it.
    fn keep(&mut self, request: Request, fits: impl Fn(Option<Value>) -> bool) -> Result<BTreeSet<Value>, Impossible> {
        self.spread();
        let allowed: BTreeSet<Value> = self.values().collect();
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

    /// Lets every open request take effect in every state in which it can, in any order, and what has expired go.
    fn spread(&mut self) {
        let mut fresh: Vec<State> = self.states.iter().cloned().collect();
        while let Some(state) = fresh.pop() {
            let open = self.open.iter().filter(|(request, _)| !state.done.contains_key(request));
            let mut next: Vec<State> = open.flat_map(|(request, open)| self.after(&state, *request, open)).collect();
            if self.may_be_over(&state) {
                next.push(self.written(&state, None));
            }
            for next in next {
                if self.states.insert(next.clone()) {
                    fresh.push(next);
                }
            }
        }
    }

    fn after(&self, state: &State, request: Request, (since, open): &(Mark, Open)) -> Vec<State> {
        let did = |mut next: State, value| {
            next.done.insert(request, value);
            next
        };
        match open {
            Open::Read => self.shown(state.held, *since).map(|value| did(state.clone(), value)).collect(),
            // It is not done with the first: what is written later may go, too.
            Open::Removal if state.held.is_some() => vec![self.written(state, None)],
            Open::Removal => Vec::new(),
            Open::Write(write, end) | Open::Abandoned(write, end) => {
                if !self.shown(state.held, *since).any(|value| write.condition.holds(value)) {
                    return Vec::new();
                }
                let held = |value: Value| value.map(|body| Held { body, end: *end });
                write.values.iter().map(|value| did(self.written(state, held(*value)), *value)).collect()
            }
        }
    }

    /// The state once this is there. Whatever was abandoned before is superseded by it.
    fn written(&self, state: &State, held: Option<Held>) -> State {
        let mut next = State { held, done: state.done.clone() };
        for (other, (_, open)) in &self.open {
            if let Open::Abandoned(..) = open {
                next.done.entry(*other).or_insert(None);
            }
        }
        next
    }

    /// An abandoned write that is over in every state is over.
    fn forget_superseded(&mut self) {
        let is_over = |request: &Request| self.states.iter().all(|state| state.done.contains_key(request));
        let abandoned = self.open.iter().filter(|(_, (_, open))| matches!(open, Open::Abandoned(..)));
        let over: Vec<Request> = abandoned.map(|(request, _)| *request).filter(is_over).collect();
        for request in over {
            self.forget(request);
        }
    }
}

#[cfg(test)]
mod tests;
