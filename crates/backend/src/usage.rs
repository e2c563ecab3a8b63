//! Usage of one backend by this process: counters of requests and bytes in each month, and the ceilings up to which
//! the process may use a limited backend.
//!
//! Counting costs a few atomic operations. A request with all bytes of its bodies belongs to the month in which it was
//! sent, by the catalog's clock.

mod catalog_time;
mod counters;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use s3o_model::usage::{Allotment, Month, ReachedLimit, UsageKind, UsagePolicy, UsagePurpose, UsageTotals};
use tokio::sync::Notify;

pub use catalog_time::CatalogTime;
pub use counters::MonthCounters;

/// Number of past months whose counters are kept; older ones were recorded long ago.
const PAST_MONTHS_MAX: usize = 3;

/// What the usage of all backends is made with.
#[derive(Clone)]
pub struct UsageContext {
    /// Decides the month of a request.
    pub time: Arc<CatalogTime>,
    /// Notified when a backend needs new ceilings.
    pub demand: Arc<Notify>,
    /// How long after the start of a month this process resumes background work that a limit stopped.
    pub resume_delay: Duration,
}

/// What this process sent to one backend and received from it, and how much more it may.
pub struct BackendUsage {
    backend: BackendName,
    context: UsageContext,
    current: Shared<MonthCounters>,
    /// Counters of past months; requests that were sent in them may still transfer bytes.
    past: Mutex<Vec<Arc<MonthCounters>>>,
    policy: Shared<UsagePolicy>,
    allotment: Shared<Option<Allotment>>,
    /// Totals of all other processes in a month, as last read.
    others: Shared<Option<(Month, UsageTotals)>>,
    /// True since new ceilings were requested.
    is_demanded: AtomicBool,
    /// Largest body that was refused because the share of ingress was too small.
    wanted_bytes: AtomicU64,
    /// Until then background work waits, in milliseconds of the catalog's clock.
    resume_at: AtomicI64,
}

impl std::fmt::Debug for BackendUsage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackendUsage").field("backend", &self.backend).finish_non_exhaustive()
    }
}

impl BackendUsage {
    /// Counters at zero. A limited backend permits nothing before [`BackendUsage::allot`].
    #[must_use]
    pub fn new(backend: BackendName, policy: UsagePolicy, context: UsageContext) -> Self {
        Self {
            backend,
            current: Shared::new(MonthCounters::new(context.time.month())),
            context,
            past: Mutex::default(),
            policy: Shared::new(policy),
            allotment: Shared::default(),
            others: Shared::default(),
            is_demanded: AtomicBool::new(false),
            wanted_bytes: AtomicU64::new(0),
            resume_at: AtomicI64::new(i64::MIN),
        }
    }

    /// The counted backend.
    #[must_use]
    pub fn backend(&self) -> &BackendName {
        &self.backend
    }

    /// Counts a request that is being sent. The bytes of its bodies are counted in the returned counters.
    pub fn count_request(&self) -> Arc<MonthCounters> {
        let counters = self.counters();
        counters.count_request();
        counters
    }

    /// The counters of the current month.
    pub fn counters(&self) -> Arc<MonthCounters> {
        let (now, current) = (self.context.time.now(), self.current.current());
        if current.holds(now) { current } else { self.turn_month(now) }
    }

    fn turn_month(&self, now: Timestamp) -> Arc<MonthCounters> {
        let mut past = self.past.lock();
        let current = self.current.current();
        if current.holds(now) {
            return current;
        }
        // The clock was set back.
        if let Some(counters) = past.iter().find(|counters| counters.holds(now)) {
            return Arc::clone(counters);
        }
        let month = Month::of(now);
        if self.is_near(&current) {
            let resumed = month.start().after(self.context.resume_delay);
            self.resume_at.store(resumed.millis(), Ordering::Relaxed);
        }
        if current.totals() != UsageTotals::default() {
            past.push(current);
        }
        let excess = past.len().saturating_sub(PAST_MONTHS_MAX);
        past.drain(..excess);
        self.current.replace(MonthCounters::new(month));
        self.is_demanded.store(false, Ordering::Relaxed);
        self.current.current()
    }

    /// The counters of the current month and of past ones.
    #[must_use]
    pub fn all_counters(&self) -> Vec<Arc<MonthCounters>> {
        self.counters();
        let past = self.past.lock();
        past.iter().cloned().chain([self.current.current()]).collect()
    }

    /// Limits in force.
    #[must_use]
    pub fn policy(&self) -> Arc<UsagePolicy> {
        self.policy.current()
    }

    /// Replaces the limits. New ceilings are requested if they differ.
    pub fn set_policy(&self, policy: UsagePolicy) {
        let before = self.policy.current();
        self.policy.replace(policy);
        if before.limits != policy.limits {
            self.allotment.replace(None);
            self.is_demanded.store(true, Ordering::Relaxed);
            self.context.demand.notify_one();
        }
    }

    /// Sets the ceilings of this process.
    pub fn allot(&self, allotment: Allotment) {
        self.wanted_bytes.store(0, Ordering::Relaxed);
        self.allotment.replace(Some(allotment));
        self.is_demanded.store(false, Ordering::Relaxed);
    }

    /// The last ceilings of this process.
    #[must_use]
    pub fn allotment(&self) -> Option<Allotment> {
        *self.allotment.current()
    }

    /// Extends the lease of the ceilings.
    pub fn extend_lease(&self, ends: Duration) {
        if let Some(held) = self.allotment() {
            self.allotment.replace(Some(Allotment { ends, ..held }));
        }
    }

    /// Sets the totals of all other processes.
    pub fn set_others(&self, month: Month, totals: UsageTotals) {
        self.others.replace(Some((month, totals)));
    }

    /// Totals of all processes in a month, as far as this one knows.
    #[must_use]
    pub fn cluster_totals(&self, counters: &MonthCounters) -> UsageTotals {
        let others = self.others.current().filter(|(month, _)| *month == counters.month());
        counters.totals().plus(&others.map(|(_, totals)| totals).unwrap_or_default())
    }

    /// True if the cluster's totals of that month have reached the threshold of a limit.
    fn is_near(&self, counters: &MonthCounters) -> bool {
        let policy = self.policy.current();
        policy.limits.is_near(&self.cluster_totals(counters), policy.threshold)
    }

    /// True if this month's totals of the cluster have reached the threshold of a limit.
    #[must_use]
    pub fn is_near_limit(&self) -> bool {
        self.policy.current().limits.is_limited() && self.is_near(&self.counters())
    }

    /// Whether background work may use the backend. It also waits at the start of a month, each process for its own
    /// delay, if the limits had stopped it before.
    #[must_use]
    pub fn permits_background(&self) -> bool {
        if !self.policy.current().limits.is_limited() {
            return true;
        }
        let counters = self.counters();
        !self.is_near(&counters)
            && self.context.time.now().millis() >= self.resume_at.load(Ordering::Relaxed)
            && self.reached(UsagePurpose::Write).is_none()
    }

    /// The limit that this process must not exceed now; `None` if a call of this purpose may be made.
    #[must_use]
    pub fn reached(&self, purpose: UsagePurpose) -> Option<ReachedLimit> {
        let policy = self.policy.current();
        if !policy.limits.is_limited() {
            return None;
        }
        let counters = self.counters();
        let used = counters.totals();
        let kind = policy.limits.reached(&used, &self.ceilings(&counters, &policy, &used), purpose)?;
        Some(self.limit_of(kind, &policy))
    }

    /// Bytes that may still be sent to the backend; `None` means no limit.
    #[must_use]
    pub fn ingress_left_bytes(&self) -> Option<u64> {
        let policy = self.policy.current();
        policy.limits.of(UsageKind::Ingress)?;
        let counters = self.counters();
        let used = counters.totals();
        Some(self.ceilings(&counters, &policy, &used).ingress_bytes.saturating_sub(used.ingress_bytes))
    }

    /// Reports a body that was refused because its size exceeds [`BackendUsage::ingress_left_bytes`], and returns the
    /// limit. A share that is large enough is requested.
    pub fn refuse_ingress(&self, size_bytes: u64) -> ReachedLimit {
        self.wanted_bytes.fetch_max(size_bytes, Ordering::Relaxed);
        let (policy, counters) = (self.policy.current(), self.counters());
        self.demand(&counters, &policy);
        self.limit_of(UsageKind::Ingress, &policy)
    }

    /// What this process needs at least.
    #[must_use]
    pub fn wanted(&self) -> UsageTotals {
        UsageTotals { ingress_bytes: self.wanted_bytes.load(Ordering::Relaxed), ..UsageTotals::default() }
    }

    fn limit_of(&self, kind: UsageKind, policy: &UsagePolicy) -> ReachedLimit {
        ReachedLimit { backend: self.backend.clone(), kind, limit: policy.limits.of(kind).unwrap_or(0) }
    }

    /// The ceilings of this process; requests new ones if they will be reached soon.
    fn ceilings(&self, counters: &MonthCounters, policy: &UsagePolicy, used: &UsageTotals) -> UsageTotals {
        let (month, now) = (counters.month(), self.context.time.since_boot());
        let held = self.allotment();
        let ceilings = held.and_then(|held| held.ceilings_in(month, now, &policy.limits));
        let is_low = held.is_none_or(|held| held.is_low(month, used, &policy.limits));
        if ceilings.is_none() || is_low {
            self.demand(counters, policy);
        }
        ceilings.unwrap_or_default()
    }

    /// Requests new ceilings, once until they arrive. Of a limit that the cluster has used up, nothing is left.
    fn demand(&self, counters: &MonthCounters, policy: &UsagePolicy) {
        let totals = self.cluster_totals(counters);
        let is_left = |kind: &UsageKind| policy.limits.of(*kind).is_some_and(|limit| totals.of(*kind) < limit);
        let is_useful = self.allotment().is_none() || UsageKind::ALL.iter().any(is_left);
        if is_useful && !self.is_demanded.swap(true, Ordering::Relaxed) {
            self.context.demand.notify_one();
        }
    }

    /// True if new ceilings were requested and have not arrived.
    #[must_use]
    pub fn is_demanded(&self) -> bool {
        self.is_demanded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
