//! Placement: the backends that may take a write, in the order to try them.

mod spread;

use crate::names::BackendName;
use crate::quota::QuotaUsage;

/// How backends are chosen (`routing.strategy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Fills the first backend, in configuration order, before the next one is used.
    #[default]
    Pack,
    /// Keeps the shares of used capacity close to each other.
    Spread,
}

/// The properties of a backend that placement uses.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and every combination occurs")]
pub struct BackendView {
    /// Name in the configuration.
    pub name: BackendName,
    /// True if it takes writes: it is neither frozen nor draining.
    pub writable: bool,
    /// True if its circuit breaker lets no write through.
    pub circuit_open: bool,
    /// False after failed probes or reads; an unreachable backend is tried after the others.
    pub reachable: bool,
    /// Smallest size that the backend recently refused for lack of space.
    pub full_from_bytes: Option<u64>,
    /// Largest object size; `None` means no limit.
    pub object_bytes_max: Option<u64>,
    /// Used, orphan and reserved bytes by the last known counters.
    pub filled_bytes: u64,
    /// Quota in bytes; `None` means no limit.
    pub limit_bytes: Option<u64>,
    /// True if a usage limit of this month is reached.
    pub usage_reached: bool,
    /// Bytes that may still be sent there this month; `None` means no limit.
    pub ingress_left_bytes: Option<u64>,
}

impl BackendView {
    /// True if the backend is a candidate for a body of this size. The counters may be out of date: the reservation
    /// decides.
    #[must_use]
    pub fn takes(&self, size_bytes: u64) -> bool {
        self.writable
            && !self.circuit_open
            && self.full_from_bytes.is_none_or(|full_from| size_bytes < full_from)
            && self.allows(size_bytes)
            && !self.lacks_usage(size_bytes)
            && self.limit_bytes.is_none_or(|limit| size_bytes <= limit.saturating_sub(self.filled_bytes))
    }

    /// True if the backend is configured for bodies of this size.
    #[must_use]
    pub fn allows(&self, size_bytes: u64) -> bool {
        self.object_bytes_max.is_none_or(|max| size_bytes <= max)
    }

    /// True if usage limits forbid a write of this size.
    #[must_use]
    pub fn lacks_usage(&self, size_bytes: u64) -> bool {
        self.usage_reached || self.ingress_left_bytes.is_some_and(|left| size_bytes > left)
    }

    /// Sets the counters.
    pub fn set_usage(&mut self, usage: &QuotaUsage) {
        self.filled_bytes = usage.used_bytes + usage.orphan_bytes + usage.reserved_bytes;
        self.limit_bytes = usage.limit_bytes;
    }
}

/// The backends to try for a body of this size, unreachable ones last. Each call of `draw` returns a random number
/// below its argument.
#[must_use]
pub fn candidates(
    strategy: Strategy,
    fleet: &[BackendView],
    size_bytes: u64,
    draw: impl FnMut(usize) -> usize,
) -> Vec<BackendName> {
    let taking: Vec<&BackendView> = fleet.iter().filter(|backend| backend.takes(size_bytes)).collect();
    let ordered = match strategy {
        Strategy::Pack => taking,
        Strategy::Spread => spread::order(taking, draw),
    };
    let (reachable, away): (Vec<_>, Vec<_>) = ordered.into_iter().partition(|backend| backend.reachable);
    reachable.into_iter().chain(away).map(|backend| backend.name.clone()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{BackendView, Strategy, candidates};

    /// A backend without limits that takes everything.
    pub(crate) fn view(name: &str) -> BackendView {
        BackendView {
            name: name.parse().expect("valid"),
            writable: true,
            circuit_open: false,
            reachable: true,
            full_from_bytes: None,
            object_bytes_max: None,
            filled_bytes: 0,
            limit_bytes: None,
            usage_reached: false,
            ingress_left_bytes: None,
        }
    }

    fn names(fleet: &[BackendView], size_bytes: u64) -> Vec<String> {
        candidates(Strategy::Pack, fleet, size_bytes, |_| 0).into_iter().map(String::from).collect()
    }

    #[test]
    fn backends_that_cannot_take_the_body_are_excluded() {
        let fleet = [
            BackendView { filled_bytes: 5, limit_bytes: Some(14), ..view("full") },
            BackendView { writable: false, ..view("frozen") },
            BackendView { circuit_open: true, ..view("open") },
            BackendView { object_bytes_max: Some(9), ..view("small") },
            BackendView { full_from_bytes: Some(10), ..view("refused") },
            BackendView { usage_reached: true, ..view("used") },
            BackendView { ingress_left_bytes: Some(9), ..view("short") },
            BackendView { filled_bytes: 4, limit_bytes: Some(14), ..view("first") },
            view("second"),
        ];
        assert_eq!(names(&fleet, 10), ["first", "second"]);
        assert_eq!(names(&fleet, 9), ["full", "small", "refused", "short", "first", "second"]);
        assert!(names(&fleet[..7], 10).is_empty());
    }

    #[test]
    fn unreachable_backend_is_tried_last() {
        let fleet = [BackendView { reachable: false, ..view("away") }, view("here")];
        assert_eq!(names(&fleet, 1), ["here", "away"]);
        assert_eq!(names(&fleet[..1], 1), ["away"]);
    }
}
