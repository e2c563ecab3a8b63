//! Counters of one backend in one month.

use std::sync::atomic::{AtomicU64, Ordering};

use s3o_model::clock::Timestamp;
use s3o_model::usage::{Month, UsageTotals};

/// What this process sent to a backend and received from it. The counters only grow, except for a request that could
/// not be sent.
#[derive(Debug)]
pub struct MonthCounters {
    month: Month,
    starts: Timestamp,
    ends: Timestamp,
    requests: AtomicU64,
    egress_bytes: AtomicU64,
    ingress_bytes: AtomicU64,
}

impl MonthCounters {
    /// Counters at zero.
    #[must_use]
    pub fn new(month: Month) -> Self {
        Self {
            month,
            starts: month.start(),
            ends: month.plus(1).start(),
            requests: AtomicU64::new(0),
            egress_bytes: AtomicU64::new(0),
            ingress_bytes: AtomicU64::new(0),
        }
    }

    /// The counted month.
    #[must_use]
    pub const fn month(&self) -> Month {
        self.month
    }

    pub(super) fn holds(&self, moment: Timestamp) -> bool {
        self.starts <= moment && moment < self.ends
    }

    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back a request for which no connection was made.
    pub fn uncount_request(&self) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts bytes that were sent to the backend.
    pub fn add_sent(&self, bytes: usize) {
        self.ingress_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that the backend sent.
    pub fn add_received(&self, bytes: usize) {
        self.egress_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The totals so far.
    #[must_use]
    pub fn totals(&self) -> UsageTotals {
        UsageTotals {
            requests: self.requests.load(Ordering::Relaxed),
            egress_bytes: self.egress_bytes.load(Ordering::Relaxed),
            ingress_bytes: self.ingress_bytes.load(Ordering::Relaxed),
        }
    }
}
