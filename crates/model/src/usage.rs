//! Usage of backends: what is counted in each month, the limits, and how processes share what is left of a limit.

mod allotment;
mod month;

use std::fmt;

pub use allotment::{Allotment, ProcessUsage, allotted_ceilings};
pub use month::{InvalidMonth, Month};

use crate::ids::InstanceId;
use crate::names::BackendName;

/// What is counted for each backend and month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageKind {
    /// Requests that were sent, whatever their outcome.
    Requests,
    /// Bytes of bodies that the backend sent.
    Egress,
    /// Bytes of bodies that were sent to the backend.
    Ingress,
}

impl UsageKind {
    /// Every kind, in the order of the settings.
    pub const ALL: [Self; 3] = [Self::Requests, Self::Egress, Self::Ingress];

    /// Name of the setting that limits it.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Requests => "api_request_limit",
            Self::Egress => "egress_byte_limit",
            Self::Ingress => "ingress_byte_limit",
        }
    }
}

/// What a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsagePurpose {
    /// Reading bytes back: requests and egress.
    Read,
    /// Storing bytes. Needs egress, too: bytes that cannot be read back are of no use.
    Write,
}

impl UsagePurpose {
    const fn needs(self, kind: UsageKind) -> bool {
        match (self, kind) {
            (Self::Write, _) | (Self::Read, UsageKind::Requests | UsageKind::Egress) => true,
            (Self::Read, UsageKind::Ingress) => false,
        }
    }
}

/// One number for each [`UsageKind`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Requests that were sent.
    pub requests: u64,
    /// Bytes received.
    pub egress_bytes: u64,
    /// Bytes sent.
    pub ingress_bytes: u64,
}

impl UsageTotals {
    /// The number of each kind, as `number` returns it.
    #[must_use]
    pub fn each(number: impl Fn(UsageKind) -> u64) -> Self {
        Self {
            requests: number(UsageKind::Requests),
            egress_bytes: number(UsageKind::Egress),
            ingress_bytes: number(UsageKind::Ingress),
        }
    }

    /// The number of this kind.
    #[must_use]
    pub const fn of(&self, kind: UsageKind) -> u64 {
        match kind {
            UsageKind::Requests => self.requests,
            UsageKind::Egress => self.egress_bytes,
            UsageKind::Ingress => self.ingress_bytes,
        }
    }

    /// Two records of the same process and month: totals only grow, so the larger number is the later one.
    #[must_use]
    pub fn merged(&self, other: &Self) -> Self {
        Self::each(|kind| self.of(kind).max(other.of(kind)))
    }

    /// The sum of two processes.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self::each(|kind| self.of(kind).saturating_add(other.of(kind)))
    }

    /// True if a number is larger than that of `other`.
    #[must_use]
    pub fn exceeds(&self, other: &Self) -> bool {
        UsageKind::ALL.iter().any(|kind| self.of(*kind) > other.of(*kind))
    }
}

/// Limits of a backend for each month.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageLimits(UsageTotals);

impl UsageLimits {
    /// Limits as configured; 0 means no limit.
    #[must_use]
    pub const fn new(limits: UsageTotals) -> Self {
        Self(limits)
    }

    /// `None` means no limit.
    #[must_use]
    pub fn of(&self, kind: UsageKind) -> Option<u64> {
        Some(self.0.of(kind)).filter(|limit| *limit > 0)
    }

    /// True if there is any limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        UsageKind::ALL.iter().any(|kind| self.of(*kind).is_some())
    }

    /// The first limit that a call of this purpose needs and that `used` has reached; `ceilings` are the totals up to
    /// which it may be used.
    #[must_use]
    pub fn reached(&self, used: &UsageTotals, ceilings: &UsageTotals, purpose: UsagePurpose) -> Option<UsageKind> {
        let is_reached = |kind: &UsageKind| self.of(*kind).is_some() && used.of(*kind) >= ceilings.of(*kind);
        UsageKind::ALL.into_iter().filter(|kind| purpose.needs(*kind)).find(is_reached)
    }

    /// True if `used` has reached this share of a limit.
    #[must_use]
    pub fn is_near(&self, used: &UsageTotals, threshold: Permille) -> bool {
        let near = |kind: &UsageKind| self.of(*kind).is_some_and(|limit| threshold.is_reached(used.of(*kind), limit));
        UsageKind::ALL.iter().any(near)
    }
}

/// A share in thousandths, from 0 to 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permille(pub u16);

impl Permille {
    /// True if `used` is at least this share of `limit`.
    #[must_use]
    pub fn is_reached(self, used: u64, limit: u64) -> bool {
        u128::from(used) * 1000 >= u128::from(limit) * u128::from(self.0)
    }
}

/// Limits of a backend, and the share of them that background work may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsagePolicy {
    /// Limits for each month.
    pub limits: UsageLimits,
    /// Background work stops there.
    pub threshold: Permille,
}

impl Default for UsagePolicy {
    fn default() -> Self {
        Self { limits: UsageLimits::default(), threshold: Permille(800) }
    }
}

/// A limit of a backend that was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedLimit {
    /// Named in the answer to the client.
    pub backend: BackendName,
    /// Requests, or bytes in one direction.
    pub kind: UsageKind,
    /// As configured.
    pub limit: u64,
}

impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, kind, limit } = self;
        write!(f, "backend {backend} has reached its {} of {limit} for this month", kind.setting())
    }
}

/// Totals of one process, backend and month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRecord {
    /// The counted backend.
    pub backend: BackendName,
    /// The month in which the requests were sent, by the catalog's clock.
    pub month: Month,
    /// The process that counted.
    pub instance: InstanceId,
    /// Since the start of the process.
    pub totals: UsageTotals,
}

#[cfg(test)]
mod tests {
    use super::{Permille, UsageKind, UsageLimits, UsagePurpose, UsageTotals};

    const fn totals(requests: u64, egress_bytes: u64, ingress_bytes: u64) -> UsageTotals {
        UsageTotals { requests, egress_bytes, ingress_bytes }
    }

    #[test]
    fn records_of_one_process_merge_by_the_larger_number() {
        let (catalog, redis) = (totals(5, 70, 0), totals(6, 60, 0));
        assert_eq!(catalog.merged(&redis), totals(6, 70, 0));
        assert_eq!(catalog.merged(&redis).merged(&redis), totals(6, 70, 0), "merging twice changes nothing");
        assert!(redis.exceeds(&catalog) && !catalog.exceeds(&totals(6, 70, 0)));
    }

    #[test]
    fn zero_means_no_limit() {
        let limits = UsageLimits::new(totals(0, 0, 9));
        assert!(limits.is_limited() && !UsageLimits::default().is_limited());
        assert_eq!((limits.of(UsageKind::Requests), limits.of(UsageKind::Ingress)), (None, Some(9)));
        assert_eq!(limits.reached(&totals(u64::MAX, u64::MAX, 8), &totals(0, 0, 9), UsagePurpose::Write), None);
    }

    #[test]
    fn a_limit_is_reached_at_its_ceiling() {
        let limits = UsageLimits::new(totals(10, 0, 0));
        let reached = |used| limits.reached(&totals(used, 0, 0), &totals(5, 0, 0), UsagePurpose::Read);
        assert_eq!((reached(4), reached(5)), (None, Some(UsageKind::Requests)));
    }

    #[test]
    fn reached_ingress_limit_permits_reads() {
        let limits = UsageLimits::new(totals(0, 5, 5));
        let full = totals(0, 5, 5);
        let reached = |used: &UsageTotals, purpose| limits.reached(used, &full, purpose);
        assert_eq!(reached(&totals(0, 0, 5), UsagePurpose::Read), None);
        assert_eq!(reached(&totals(0, 0, 5), UsagePurpose::Write), Some(UsageKind::Ingress));
        assert_eq!(reached(&totals(0, 5, 0), UsagePurpose::Read), Some(UsageKind::Egress));
        assert_eq!(reached(&totals(0, 5, 0), UsagePurpose::Write), Some(UsageKind::Egress));
    }

    #[test]
    fn background_work_stops_at_the_threshold() {
        let limits = UsageLimits::new(totals(5000, 0, 0));
        assert!(!limits.is_near(&totals(3999, 0, 0), Permille(800)));
        assert!(limits.is_near(&totals(4000, 0, 0), Permille(800)));
        assert!(UsageLimits::new(totals(u64::MAX, 0, 0)).is_near(&totals(u64::MAX, 0, 0), Permille(1000)));
        assert!(!UsageLimits::default().is_near(&totals(u64::MAX, 0, 0), Permille(0)));
    }
}
