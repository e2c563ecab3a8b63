//! What a read has met, by which it chooses the next copy.

use std::collections::VecDeque;

use s3o_model::content::{CopyTrust, Location, ReadableCopy};
use s3o_model::names::BackendName;
use s3o_model::usage::ReachedLimit;

/// Copies of a segment that were skipped for now.
#[derive(Debug, Default)]
pub(super) struct SkippedCopies {
    /// Copies whose first byte was late.
    late: VecDeque<ReadableCopy>,
    /// Copies on backends whose usage limit is reached.
    limited: VecDeque<ReadableCopy>,
    /// The limit of the last of these.
    pub(super) limit: Option<ReachedLimit>,
}

impl SkippedCopies {
    /// Takes the next copy to open. Late copies are tried again before less trusted ones. A suspect copy is not opened
    /// instead of a better one that only a usage limit forbids to read: its bytes may be wrong.
    pub(super) fn next(&mut self, copies: &mut VecDeque<ReadableCopy>) -> Option<ReadableCopy> {
        if self.limit.is_some() {
            copies.retain(|copy| copy.trust < CopyTrust::Suspect);
        }
        let is_late_better =
            self.late.front().is_some_and(|late| copies.front().is_none_or(|copy| late.trust < copy.trust));
        if is_late_better { self.late.pop_front() } else { copies.pop_front() }
    }

    /// Skips a copy on a backend whose usage limit is reached.
    pub(super) fn skip_limited(&mut self, copy: ReadableCopy, limit: ReachedLimit) {
        self.limit = Some(limit);
        self.limited.push_back(copy);
    }

    /// Skips a copy whose first byte is late, and its backend in the segments that follow.
    pub(super) fn skip_late(&mut self, copy: ReadableCopy, history: &mut ReadHistory) {
        history.late.push(copy.location.backend.clone());
        self.late.push_back(copy);
    }

    /// Returns the skipped copies to the segment, for the case that the open one fails.
    pub(super) fn put_back(&mut self, copies: &mut VecDeque<ReadableCopy>) {
        copies.append(&mut self.late);
        copies.append(&mut self.limited);
    }
}

/// What one read has met so far.
#[derive(Debug, Default)]
pub(crate) struct ReadHistory {
    /// Copies of the current segment that were opened, the first one first.
    pub(super) opened: Vec<Location>,
    /// Backends whose first or next byte was late: the segments that follow try them last.
    pub(super) late: Vec<BackendName>,
    /// True once a copy was open: a response that has begun is finished, whatever the usage limits.
    pub(super) has_begun: bool,
}

impl ReadHistory {
    pub(super) fn begin_segment(&mut self) {
        self.opened.clear();
    }

    /// The copies of the last segment that were opened, the first one first.
    pub(crate) fn opened(&self) -> &[Location] {
        &self.opened
    }
}
