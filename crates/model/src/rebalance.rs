//! Rebalancing: the choice of the backend that gives its next copy and of the backend that takes it.
//!
//! A pass plans moves without waiting for them: it changes its own counters as if each move had succeeded. A dry run
//! and a real run therefore plan the same moves. During a pass a backend either gives or takes, so no copy is moved on.

use std::collections::HashSet;

use crate::ids::ContentId;
use crate::names::BackendName;
use crate::placement::{BackendView, Strategy};

/// Number of moves of one pass; the next pass continues.
pub const MOVES_MAX: usize = 100_000;

/// How copies are distributed (`rebalance`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RebalanceRules {
    /// `Pack` moves copies towards the first backends, `Spread` moves them until the used shares are close.
    pub strategy: Strategy,
    /// `Spread` leaves differences of used shares up to this one alone, from 0 to 1.
    pub threshold: f64,
}

/// One backend as input of a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendLoad {
    /// Whether it takes writes, and its capacity.
    pub view: BackendView,
    /// Bytes of its copies. Bytes that wait for deletion are left out: they are gone soon, and a pass that counted them
    /// would move too much, and move it back later.
    pub used_bytes: u64,
    /// True if the catalog allows moves from and to it: it is neither draining, unhealthy, frozen nor being removed.
    pub is_movable: bool,
}

/// A copy that may be moved.
#[derive(Debug, Clone)]
pub struct MovableCopy<'a> {
    /// A content has at most one copy on each backend.
    pub content: ContentId,
    /// Number of bytes.
    pub size_bytes: u64,
    /// The backends that have a copy of the content, in whatever state.
    pub holders: Vec<&'a BackendName>,
}

/// What a backend does in a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassRole {
    Giving,
    Taking,
}

#[derive(Debug, Clone)]
struct PassMember {
    load: BackendLoad,
    role: Option<PassRole>,
    /// True if all of its copies were considered.
    is_exhausted: bool,
}

/// One pass over the copies of the backends.
#[derive(Debug, Clone)]
pub struct RebalancePass {
    rules: RebalanceRules,
    /// In configuration order.
    members: Vec<PassMember>,
    /// Contents with several copies of which one was moved; the other copies stay.
    moved: HashSet<ContentId>,
    moves: usize,
}

impl BackendLoad {
    fn is_usable(&self) -> bool {
        self.is_movable && self.view.writable && !self.view.circuit_open && self.view.reachable
    }
}

impl PassMember {
    fn may_give(&self) -> bool {
        self.load.is_usable() && !self.is_exhausted && self.role != Some(PassRole::Taking)
    }

    fn may_take(&self) -> bool {
        self.load.is_usable() && self.role != Some(PassRole::Giving)
    }
}

impl RebalancePass {
    /// A pass over these backends, in configuration order.
    #[must_use]
    pub fn new(rules: RebalanceRules, loads: Vec<BackendLoad>) -> Self {
        let member = |load| PassMember { load, role: None, is_exhausted: false };
        Self { rules, members: loads.into_iter().map(member).collect(), moved: HashSet::new(), moves: 0 }
    }

    /// Replaces states and counters by current ones. A backend that is missing takes no part any more.
    pub fn refresh(&mut self, mut loads: Vec<BackendLoad>) {
        for member in &mut self.members {
            match loads.iter().position(|load| load.view.name == member.load.view.name) {
                Some(position) => member.load = loads.swap_remove(position),
                None => member.load.is_movable = false,
            }
        }
    }

    /// The backend whose copies to consider next; `None` if the pass is complete.
    #[must_use]
    pub fn next_source(&self) -> Option<&BackendName> {
        if self.is_cut() {
            return None;
        }
        let position = match self.rules.strategy {
            Strategy::Pack => self.last_with_capacity_before(),
            Strategy::Spread => self.fullest().filter(|source| self.has_emptier(*source)),
        };
        position.map(|position| &self.members[position].load.view.name)
    }

    /// True if the pass ended because it has planned as many moves as one pass may.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.moves >= MOVES_MAX
    }

    /// Records that all copies of a backend were considered.
    pub fn exhaust(&mut self, source: &BackendName) {
        for member in self.members.iter_mut().filter(|member| member.load.view.name == *source) {
            member.is_exhausted = true;
        }
    }

    /// Plans to move a copy away from `source`, and returns where to; `None` if it stays.
    pub fn place(&mut self, source: &BackendName, copy: &MovableCopy<'_>) -> Option<BackendName> {
        let from = self.members.iter().position(|member| member.load.view.name == *source)?;
        if self.moved.contains(&copy.content) {
            return None;
        }
        let to = match self.rules.strategy {
            Strategy::Pack => (0..from).find(|to| self.can_take(*to, copy)),
            Strategy::Spread => self.emptiest_for(from, copy),
        }?;
        self.record(from, to, copy);
        Some(self.members[to].load.view.name.clone())
    }

    fn record(&mut self, from: usize, to: usize, copy: &MovableCopy<'_>) {
        self.moves += 1;
        if copy.holders.len() > 1 {
            self.moved.insert(copy.content);
        }
        let giving = &mut self.members[from];
        giving.role = Some(PassRole::Giving);
        giving.load.used_bytes = giving.load.used_bytes.saturating_sub(copy.size_bytes);
        let taking = &mut self.members[to];
        taking.role = Some(PassRole::Taking);
        taking.load.used_bytes = taking.load.used_bytes.saturating_add(copy.size_bytes);
        taking.load.view.filled_bytes = taking.load.view.filled_bytes.saturating_add(copy.size_bytes);
    }

    fn can_take(&self, to: usize, copy: &MovableCopy<'_>) -> bool {
        let member = &self.members[to];
        member.may_take() && member.load.view.takes(copy.size_bytes) && !copy.holders.contains(&&member.load.view.name)
    }

    /// The last backend that may give, and has one before it that may take something.
    fn last_with_capacity_before(&self) -> Option<usize> {
        let takes = |member: &PassMember| member.may_take() && member.load.view.takes(1);
        let first = self.members.iter().position(takes)?;
        (first + 1..self.members.len()).rev().find(|position| self.members[*position].may_give())
    }

    fn fullest(&self) -> Option<usize> {
        let giving = (0..self.members.len()).filter(|position| self.members[*position].may_give());
        // Of equally full ones the first: `max_by` returns the last.
        giving.rev().max_by(|one, other| self.share(*one).total_cmp(&self.share(*other)))
    }

    fn has_emptier(&self, source: usize) -> bool {
        (0..self.members.len()).any(|to| to != source && self.members[to].may_take() && self.is_apart(source, to))
    }

    /// The backend with the smallest used share that can take the copy and does not end above the source.
    fn emptiest_for(&self, from: usize, copy: &MovableCopy<'_>) -> Option<usize> {
        let fits = |to: &usize| {
            *to != from && self.can_take(*to, copy) && self.is_apart(from, *to) && self.stays_below(from, *to, copy)
        };
        (0..self.members.len()).filter(fits).min_by(|one, other| self.share(*one).total_cmp(&self.share(*other)))
    }

    fn is_apart(&self, from: usize, to: usize) -> bool {
        self.share(from) - self.share(to) > self.rules.threshold
    }

    /// True if the share of the target is at most that of the source afterwards. An empty copy changes no share.
    fn stays_below(&self, from: usize, to: usize, copy: &MovableCopy<'_>) -> bool {
        let used = |position: usize| self.members[position].load.used_bytes;
        let left = u128::from(used(from).saturating_sub(copy.size_bytes));
        let taken = u128::from(used(to).saturating_add(copy.size_bytes));
        copy.size_bytes > 0 && taken * u128::from(self.capacity(from)) <= left * u128::from(self.capacity(to))
    }

    #[expect(clippy::cast_precision_loss, reason = "shares are compared with a threshold, not added up")]
    fn share(&self, position: usize) -> f64 {
        self.members[position].load.used_bytes as f64 / self.capacity(position) as f64
    }

    /// The limit of a backend. One without a limit counts as large as the largest; if none has a limit, the shares of
    /// all used bytes are compared.
    fn capacity(&self, position: usize) -> u64 {
        let limit = |member: &PassMember| member.load.view.limit_bytes;
        let largest = || self.members.iter().filter_map(limit).max();
        let all_used = || self.members.iter().fold(0, |sum: u64, member| sum.saturating_add(member.load.used_bytes));
        limit(&self.members[position]).or_else(largest).unwrap_or_else(all_used).max(1)
    }
}

#[cfg(test)]
mod tests;
