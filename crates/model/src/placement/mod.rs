//! Which backends a write may go to, in the order to try them.

pub mod pack;

use crate::names::BackendName;

/// What placement knows of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendView {
    /// Its name.
    pub name: BackendName,
    /// Whether it takes writes now: not frozen, not draining.
    pub writable: bool,
    /// Whether its last probes were answered; one that is away is tried after the others.
    pub reachable: bool,
    /// Bodies of this size and above do not fit on its disk or in its account, by its own answer.
    pub full_from_bytes: Option<u64>,
    /// The largest object it takes, where it has a limit.
    pub object_bytes_max: Option<u64>,
    /// What is free, by the counters last seen; the reservation itself decides.
    pub available_bytes: Option<u64>,
}

impl BackendView {
    /// Whether a body of this size may be offered to it at all.
    #[must_use]
    pub fn takes(&self, size_bytes: u64) -> bool {
        self.writable
            && self.full_from_bytes.is_none_or(|full_from| size_bytes < full_from)
            && self.object_bytes_max.is_none_or(|max| size_bytes <= max)
            && self.available_bytes.is_none_or(|free| size_bytes <= free)
    }
}
