//! For how long one instance could not use a backend, or could use it again.
//!
//! Moments are times since boot. A backend that fails, recovers and fails again within the settling time never counts
//! as recovered: otherwise a store that answers for a moment every few minutes would never be unhealthy.

use std::time::Duration;

/// What one instance saw of one backend since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutageTracker {
    failing_since: Option<Duration>,
    usable_since: Option<Duration>,
}

impl OutageTracker {
    /// Records the state at `now`: `usable_since` is the moment since which calls are made, `None` if none are. The
    /// outage ends once calls have been made for the time `settling`.
    pub fn record(&mut self, usable_since: Option<Duration>, now: Duration, settling: Duration) {
        let Some(since) = usable_since else {
            self.failing_since = self.failing_since.or(Some(now));
            self.usable_since = None;
            return;
        };
        let since = self.usable_since.map_or_else(|| self.first_usable(since, now), |known| known.max(since));
        self.usable_since = Some(since);
        if now.saturating_sub(since) >= settling {
            self.failing_since = None;
        }
    }

    /// A backend that was failing at the last record became usable after it, whatever its circuit says.
    fn first_usable(&self, since: Duration, now: Duration) -> Duration {
        if self.failing_since.is_some() { now } else { since }
    }

    /// For how long the backend could not be used; `None` if it can be.
    #[must_use]
    pub fn failing_for(&self, now: Duration) -> Option<Duration> {
        self.failing_since.map(|since| now.saturating_sub(since))
    }

    /// True if the backend could be used without a break for the time `settling`.
    #[must_use]
    pub fn is_over(&self, now: Duration, settling: Duration) -> bool {
        self.usable_since.is_some_and(|since| now.saturating_sub(since) >= settling)
    }
}

/// True if more than half of the `configured` backends fail. The fault is then more likely the network of the
/// instances.
#[must_use]
pub const fn most_fail(failing: usize, configured: usize) -> bool {
    failing * 2 > configured
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{OutageTracker, most_fail};

    const SETTLING: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn outage_counts_from_the_first_failure_that_this_process_saw() {
        let mut outage = OutageTracker::default();
        assert_eq!(outage.failing_for(at(9)), None);
        outage.record(None, at(10), SETTLING);
        outage.record(None, at(14), SETTLING);
        assert_eq!(outage.failing_for(at(20)), Some(at(10)));
    }

    #[test]
    fn short_recovery_does_not_end_an_outage() {
        let mut outage = OutageTracker::default();
        outage.record(None, at(10), SETTLING);
        outage.record(Some(at(15)), at(16), SETTLING);
        outage.record(Some(at(40)), at(44), SETTLING);
        assert_eq!(outage.failing_for(at(50)), Some(at(40)), "the circuit closed anew at 40");
        assert!(!outage.is_over(at(69), SETTLING));
        outage.record(Some(at(40)), at(70), SETTLING);
        assert_eq!((outage.failing_for(at(70)), outage.is_over(at(70), SETTLING)), (None, true));
    }

    #[test]
    fn recovery_counts_from_the_moment_at_which_it_was_seen() {
        let mut outage = OutageTracker::default();
        outage.record(None, at(100), SETTLING);
        // The circuit was closed all along; the backend was frozen.
        outage.record(Some(at(0)), at(104), SETTLING);
        assert!(!outage.is_over(at(133), SETTLING));
        assert!(outage.is_over(at(134), SETTLING));
    }

    #[test]
    fn backend_that_never_failed_is_usable_since_its_circuit_closed() {
        let mut outage = OutageTracker::default();
        outage.record(Some(at(0)), at(100), SETTLING);
        assert!(outage.is_over(at(100), SETTLING));
    }

    #[test]
    fn half_of_the_backends_is_not_most_of_them() {
        assert!(!most_fail(0, 1) && !most_fail(1, 2) && !most_fail(2, 5));
        assert!(most_fail(1, 1) && most_fail(2, 3) && most_fail(3, 5));
    }
}
