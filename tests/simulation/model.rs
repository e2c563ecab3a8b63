//! The reference model: for each key, every state that the answers so far allow.
//!
//! A request without an answer may take effect at any moment between its start and its end. So a key has several
//! possible states, each with the open requests that have taken effect in it. An answer removes the states that it
//! contradicts. When none is left, no correct store could have given these answers.
//!
//! Whether an object has expired depends on the clock alone: each request sees the clock at some moment between its
//! start and its end, and the row may be deleted at any time after the expiry.

mod trash;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use s3o_model::clock::Timestamp;

use crate::clock::{ClockMark, SimulatedClock};
use crate::expiries::ExpiryModel;

pub use write::{ModelCondition, ModelWrite};

/// Index of a body in [`crate::bodies::Bodies`].
pub type BodyId = usize;
/// The body of a key; None if there is no object.
pub type KeyContent = Option<BodyId>;
/// Number of one request on one key.
pub type ModelRequest = u64;

/// Whether `pending_reaper` may commit an unacknowledged PUT with a declared digest after its lease expired, unless
/// another write superseded it (`recovery: promote`).
pub const REAPER_PROMOTES: bool = true;

/// What an open request may still do to its key.
#[derive(Debug, Clone)]
enum OpenRequest {
    Read,
    /// The second field is the index of its expiry.
    Write(ModelWrite, Option<usize>),
    /// A write whose outcome is unknown: `pending_reaper` may promote it until another write takes effect.
    Abandoned(ModelWrite, Option<usize>),
    /// A lifecycle rule, which may delete the object at any moment and any number of times.
    Removal,
    /// An operation that may move the object to trash.
    Rm,
    /// An operation that may restore an object if the key is free.
    Restore,
}

/// The row of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct StoredRow {
    body: BodyId,
    /// Index of its expiry; None never expires.
    expiry: Option<usize>,
}

/// One possible state of a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct KeyState {
    held: Option<StoredRow>,
    /// What each open request that took effect read or wrote.
    done: BTreeMap<ModelRequest, KeyContent>,
}

/// All possible states of one key.
pub struct KeyModel {
    states: BTreeSet<KeyState>,
    /// With the time of their start.
    open: BTreeMap<ModelRequest, (ClockMark, OpenRequest)>,
    expiries: Vec<ExpiryModel>,
    /// What may be in trash.
    trashed: BTreeSet<StoredRow>,
    clock: Arc<SimulatedClock>,
}

/// An answer that no correct store could have given.
#[derive(Debug, PartialEq, Eq)]
pub struct Contradiction(pub String);

impl KeyModel {
    /// A key without an object.
    pub fn new(clock: Arc<SimulatedClock>) -> Self {
        let states = BTreeSet::from([KeyState { held: None, done: BTreeMap::new() }]);
        Self { states, open: BTreeMap::new(), expiries: Vec::new(), trashed: BTreeSet::new(), clock }
    }

    fn start(&mut self, request: ModelRequest, what: OpenRequest) {
        self.open.insert(request, (self.clock.mark(), what));
    }

    /// A read may see every state from now on.
    pub fn start_read(&mut self, request: ModelRequest) {
        self.start(request, OpenRequest::Read);
    }

    /// A write may take effect from now on.
    pub fn start_write(&mut self, request: ModelRequest, write: ModelWrite) {
        let end = write.expiry.map(|expiry| {
            self.expiries.push(ExpiryModel::new(self.clock.mark(), expiry));
            self.expiries.len() - 1
        });
        self.start(request, OpenRequest::Write(write, end));
    }

    /// A lifecycle rule is set.
    pub fn start_removal(&mut self, request: ModelRequest) {
        self.start(request, OpenRequest::Removal);
    }

    /// An open copy may find these contents at its source as well.
    pub fn may_also_write(&mut self, request: ModelRequest, more: &BTreeSet<KeyContent>) {
        if let Some((_, OpenRequest::Write(write, _))) = self.open.get_mut(&request) {
            write.values.extend(more.iter().copied());
        }
    }

    /// The answer to a write says when its object expires.
    pub fn confirm_expiry(&mut self, request: ModelRequest, moment: Timestamp) -> Result<(), Contradiction> {
        match self.open.get(&request) {
            Some((_, OpenRequest::Write(_, Some(end)))) => self.expiries[*end].confirm(moment, &self.clock),
            _ => Err(Contradiction(format!("the write has no expiry, but expires at {moment}"))),
        }
    }

    /// The contents that the key may have now or after the open writes.
    pub fn possible(&self) -> BTreeSet<KeyContent> {
        let written = self.open.values().filter_map(|open| match open {
            (_, OpenRequest::Write(write, _) | OpenRequest::Abandoned(write, _)) => Some(&write.values),
            (_, OpenRequest::Read | OpenRequest::Removal | OpenRequest::Rm | OpenRequest::Restore) => None,
        });
        self.values().chain(written.flatten().copied()).chain(self.restorable()).collect()
    }

    /// The contents that the row may have, expired or not.
    fn values(&self) -> impl Iterator<Item = KeyContent> {
        self.states.iter().map(|state| state.held.map(|held| held.body))
    }

    /// Whether a write is open, or the row may be deleted because it has expired.
    pub fn is_changing(&self) -> bool {
        let is_writing = self.open.values().any(|(_, open)| !matches!(open, OpenRequest::Read));
        is_writing || self.states.iter().any(|state| self.may_have_expired(state))
    }

    /// Whether the object of a state may have expired.
    fn may_have_expired(&self, state: &KeyState) -> bool {
        self.expiry_of(state.held).is_some_and(|expiry| expiry.may_have_passed(&self.clock))
    }

    fn expiry_of(&self, held: Option<StoredRow>) -> Option<&ExpiryModel> {
        held?.expiry.map(|index| &self.expiries[index])
    }

    /// What a request that started at the mark may have seen.
    fn visible(&self, held: Option<StoredRow>, since: ClockMark) -> impl Iterator<Item = KeyContent> {
        let body = held.map(|held| held.body);
        let (unexpired, expired) = match self.expiry_of(held) {
            Some(expiry) => (expiry.may_be_after(since, &self.clock), expiry.may_be_before_end_of(since, &self.clock)),
            None => (true, false),
        };
        unexpired.then_some(body).into_iter().chain(expired.then_some(None))
    }

    /// The request was answered, and read or wrote a content that fits; returns the contents that this may have been.
    pub fn answered(
        &mut self,
        request: ModelRequest,
        fits: impl Fn(KeyContent) -> bool,
    ) -> Result<BTreeSet<KeyContent>, Contradiction> {
        self.keep(request, |done| done.is_some_and(&fits))
    }

    /// The answer says that the request has no effect.
    pub fn refused(&mut self, request: ModelRequest) -> Result<(), Contradiction> {
        self.keep(request, |done| done.is_none()).map(drop)
    }

    /// The outcome of the request is unknown. It takes no effect from now on, unless `pending_reaper` promotes it.
    pub fn lost(&mut self, request: ModelRequest) {
        self.expand();
        if let Some((_, open)) = self.open.get_mut(&request)
            && let OpenRequest::Write(write, end) = open
            && write.declared
            && REAPER_PROMOTES
        {
            *open = OpenRequest::Abandoned(write.clone(), *end);
            return;
        }
        self.forget(request);
    }

    /// Keeps the states in which the request had this effect, and closes it.
    fn keep(
        &mut self,
        request: ModelRequest,
        fits: impl Fn(Option<KeyContent>) -> bool,
    ) -> Result<BTreeSet<KeyContent>, Contradiction> {
        self.expand();
        let allowed: BTreeSet<KeyContent> = self.values().collect();
        self.states.retain(|state| fits(state.done.get(&request).copied()));
        let seen = self.states.iter().filter_map(|state| state.done.get(&request).copied()).collect();
        self.forget(request);
        if self.states.is_empty() {
            return Err(Contradiction(format!("only {allowed:?} was possible")));
        }
        Ok(seen)
    }

    fn forget(&mut self, request: ModelRequest) {
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

    /// Adds every state that open requests and the expiry worker can produce, in any order.
    fn expand(&mut self) {
        self.expand_once();
        while self.note_trashed() {
            self.expand_once();
        }
    }

    fn expand_once(&mut self) {
        let mut fresh: Vec<KeyState> = self.states.iter().cloned().collect();
        while let Some(state) = fresh.pop() {
            let open = self.open.iter().filter(|(request, _)| !state.done.contains_key(request));
            let mut next: Vec<KeyState> = open.flat_map(|(request, open)| self.after(&state, *request, open)).collect();
            if self.may_have_expired(&state) {
                next.push(self.written(&state, None));
            }
            for next in next {
                if self.states.insert(next.clone()) {
                    fresh.push(next);
                }
            }
        }
    }

    fn after(
        &self,
        state: &KeyState,
        request: ModelRequest,
        (since, open): &(ClockMark, OpenRequest),
    ) -> Vec<KeyState> {
        let did = |mut next: KeyState, value| {
            next.done.insert(request, value);
            next
        };
        match open {
            OpenRequest::Read => self.visible(state.held, *since).map(|value| did(state.clone(), value)).collect(),
            // Not marked as done: the rule may delete later writes as well.
            OpenRequest::Removal | OpenRequest::Rm if state.held.is_some() => vec![self.written(state, None)],
            OpenRequest::Restore if state.held.is_none() => self.restored(state),
            OpenRequest::Removal | OpenRequest::Rm | OpenRequest::Restore => Vec::new(),
            OpenRequest::Write(write, end) | OpenRequest::Abandoned(write, end) => {
                if !self.visible(state.held, *since).any(|value| write.condition.holds(value)) {
                    return Vec::new();
                }
                let held = |value: KeyContent| value.map(|body| StoredRow { body, expiry: *end });
                write.values.iter().map(|value| did(self.written(state, held(*value)), *value)).collect()
            }
        }
    }

    /// The state after a write of this. It supersedes every write that was abandoned before.
    fn written(&self, state: &KeyState, held: Option<StoredRow>) -> KeyState {
        let mut next = KeyState { held, done: state.done.clone() };
        for (other, (_, open)) in &self.open {
            if let OpenRequest::Abandoned(..) = open {
                next.done.entry(*other).or_insert(None);
            }
        }
        next
    }

    /// Closes abandoned writes that are superseded in every state.
    fn forget_superseded(&mut self) {
        let is_superseded = |request: &ModelRequest| self.states.iter().all(|state| state.done.contains_key(request));
        let abandoned = self.open.iter().filter(|(_, (_, open))| matches!(open, OpenRequest::Abandoned(..)));
        let superseded: Vec<ModelRequest> = abandoned.map(|(request, _)| *request).filter(is_superseded).collect();
        for request in superseded {
            self.forget(request);
        }
    }
}

#[cfg(test)]
mod tests;
