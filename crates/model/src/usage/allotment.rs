//! How processes share what is left of a limit.
//!
//! Each process has ceilings: totals up to which it may count before it queries the catalog again. They are recorded
//! in the catalog, and other processes subtract them from the limit. So all processes together stay within the limit,
//! also while they know nothing of each other.

use std::time::Duration;

use super::{Month, UsageKind, UsageLimits, UsageTotals};

/// What another process has counted, and may still count without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    /// The last known totals.
    pub totals: UsageTotals,
    /// Its recorded ceilings.
    pub ceilings: UsageTotals,
    /// True until its lease ends: a process whose lease has ended counts nothing before it has new ceilings.
    pub is_live: bool,
}

impl ProcessUsage {
    /// The part of a limit that no other process may use.
    fn reserved(&self, kind: UsageKind) -> u64 {
        let ceiling = if self.is_live { self.ceilings.of(kind) } else { 0 };
        self.totals.of(kind).max(ceiling)
    }
}

/// New ceilings of a process with these totals. It gets an equal share of what is left. One more share is kept for a
/// process that starts next, so that it need not wait for the others. A process that `wants` more gets it, if that much
/// is left.
#[must_use]
pub fn allotted_ceilings(
    limits: &UsageLimits,
    own: &UsageTotals,
    others: &[ProcessUsage],
    wants: &UsageTotals,
) -> UsageTotals {
    let live = others.iter().filter(|other| other.is_live).count() as u64;
    UsageTotals::each(|kind| {
        let Some(limit) = limits.of(kind) else { return u64::MAX };
        let reserved = others.iter().map(|other| other.reserved(kind)).fold(own.of(kind), u64::saturating_add);
        let left = limit.saturating_sub(reserved);
        let share = left.div_ceil(live + 2).max(wants.of(kind).min(left));
        own.of(kind).saturating_add(share)
    })
}

/// The ceilings of this process, and how long they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allotment {
    /// They hold in this month only.
    pub month: Month,
    /// Totals of this process when it got them.
    pub since: UsageTotals,
    /// Totals up to which it may count.
    pub ceilings: UsageTotals,
    /// End of the lease, as time since boot.
    pub ends: Duration,
    /// Number of other live processes.
    pub others: u64,
}

impl Allotment {
    /// The ceilings in a month; none once the lease has ended. At the start of the next month a process may count its
    /// share of the whole limit until it has new ceilings, so that no request has to wait for them.
    #[must_use]
    pub fn ceilings_in(&self, month: Month, now: Duration, limits: &UsageLimits) -> Option<UsageTotals> {
        if now >= self.ends {
            return None;
        }
        if month == self.month {
            return Some(self.ceilings);
        }
        let share = |kind| limits.of(kind).map_or(u64::MAX, |limit| limit / (self.others + 2));
        (month == self.month.plus(1)).then(|| UsageTotals::each(share))
    }

    /// True if half of a share was counted, so that new ceilings are needed soon.
    #[must_use]
    pub fn is_low(&self, month: Month, used: &UsageTotals, limits: &UsageLimits) -> bool {
        let half = |kind: &UsageKind| {
            let (since, ceiling) = (self.since.of(*kind), self.ceilings.of(*kind));
            limits.of(*kind).is_some() && used.of(*kind) >= since + ceiling.saturating_sub(since) / 2
        };
        month != self.month || UsageKind::ALL.iter().any(half)
    }

    /// True if this process holds much more than the share that it would get now, so that others wait for it.
    #[must_use]
    pub fn is_excessive(&self, used: &UsageTotals, fair: &UsageTotals, limits: &UsageLimits) -> bool {
        let excessive = |kind: &UsageKind| {
            let unused = |ceilings: &UsageTotals| ceilings.of(*kind).saturating_sub(used.of(*kind));
            limits.of(*kind).is_some() && unused(&self.ceilings) > unused(fair).saturating_mul(2)
        };
        UsageKind::ALL.iter().any(excessive)
    }
}

#[cfg(test)]
mod tests {
    use super::{Allotment, ProcessUsage, allotted_ceilings};
    use crate::entropy::{Entropy as _, SeededEntropy};
    use crate::usage::{UsageKind, UsageLimits, UsageTotals};
    use std::time::Duration;

    fn requests(requests: u64) -> UsageTotals {
        UsageTotals { requests, ..UsageTotals::default() }
    }

    fn limit(limit: u64) -> UsageLimits {
        UsageLimits::new(requests(limit))
    }

    fn process(totals: u64, ceiling: u64, is_live: bool) -> ProcessUsage {
        ProcessUsage { totals: requests(totals), ceilings: requests(ceiling), is_live }
    }

    fn ceiling(own: u64, others: &[ProcessUsage], wants: u64) -> u64 {
        allotted_ceilings(&limit(100), &requests(own), others, &requests(wants)).requests
    }

    #[test]
    fn a_process_gets_a_share_and_leaves_one_for_the_next() {
        assert_eq!(ceiling(0, &[], 0), 50);
        assert_eq!(ceiling(0, &[process(0, 50, true)], 0), 17);
        assert_eq!(ceiling(10, &[process(0, 50, true)], 0), 24);
    }

    #[test]
    fn ceilings_of_ended_leases_are_not_reserved() {
        assert_eq!(ceiling(0, &[process(20, 60, false)], 0), 40);
        assert_eq!(ceiling(0, &[process(100, 0, false)], 0), 0);
        assert_eq!(ceiling(3, &[process(99, 50, false)], 0), 3, "over the limit, nothing is left");
    }

    #[test]
    fn request_is_granted_up_to_the_remaining_limit() {
        assert_eq!(ceiling(0, &[process(0, 40, true)], 55), 55);
        assert_eq!(ceiling(0, &[process(0, 40, true)], 500), 60);
    }

    #[test]
    fn numbers_without_a_limit_have_no_ceiling() {
        let ceilings = allotted_ceilings(&limit(100), &requests(0), &[], &requests(0));
        assert_eq!((ceilings.egress_bytes, ceilings.ingress_bytes), (u64::MAX, u64::MAX));
    }

    /// Processes that know nothing but the recorded ceilings never count more than the limit together, and they use it
    /// up: the last request is refused only when nothing is left.
    #[test]
    fn all_processes_together_stay_within_the_limit_and_use_it_up() {
        for seed in 0..200 {
            let random = SeededEntropy::new(seed);
            let below = |below: u64| random.next_u64() % below;
            let mut processes = vec![process(0, 0, true); usize::try_from(1 + below(4)).expect("small")];
            for _ in 0..500 {
                let chosen = usize::try_from(below(processes.len() as u64)).expect("small");
                let mut others = processes.clone();
                let own = others.remove(chosen);
                let fair = allotted_ceilings(&limit(100), &own.totals, &others, &requests(0));
                let used = own.totals.requests + below(30).min(fair.requests - own.totals.requests);
                processes[chosen] = ProcessUsage { totals: requests(used), ceilings: fair, is_live: true };
                let reserved: u64 = processes.iter().map(|process| process.reserved(UsageKind::Requests)).sum();
                assert!(reserved <= 100, "seed {seed}: {reserved}");
            }
            let used: u64 = processes.iter().map(|process| process.totals.requests).sum();
            assert_eq!(used, 100, "seed {seed}");
        }
    }

    fn allotment() -> Allotment {
        let month = "2026-11".parse().expect("valid");
        Allotment { month, since: requests(10), ceilings: requests(30), ends: Duration::from_mins(1), others: 1 }
    }

    #[test]
    fn ceilings_end_with_their_lease_and_their_month() {
        let (held, limits) = (allotment(), limit(90));
        let at = |month, seconds| held.ceilings_in(month, Duration::from_secs(seconds), &limits);
        assert_eq!(at(held.month, 59).map(|ceilings| ceilings.requests), Some(30));
        assert_eq!(at(held.month, 60), None);
        assert_eq!(at(held.month.plus(1), 59).map(|ceilings| ceilings.requests), Some(30), "a third of the limit");
        assert_eq!(at(held.month.plus(2), 59), None);
    }

    #[test]
    fn new_ceilings_are_needed_after_half_of_a_share() {
        let (held, limits) = (allotment(), limit(90));
        assert!(!held.is_low(held.month, &requests(19), &limits));
        assert!(held.is_low(held.month, &requests(20), &limits));
        assert!(held.is_low(held.month.plus(1), &requests(0), &limits));
    }

    #[test]
    fn an_unused_share_is_returned_when_little_is_left() {
        let (held, limits) = (allotment(), limit(90));
        assert!(!held.is_excessive(&requests(10), &requests(20), &limits));
        assert!(held.is_excessive(&requests(10), &requests(19), &limits));
    }
}
