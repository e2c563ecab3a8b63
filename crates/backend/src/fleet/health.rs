//! Health of one backend as this instance sees it.

use std::fmt;
use std::time::Duration;

use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;

use super::Fleet;

/// Number of consecutive failed probes after which a backend counts as away.
const FAILURES_UNTIL_AWAY: u32 = 2;
/// How long a backend counts as full after a "no space" answer.
pub const FULL_FOR: Duration = Duration::from_mins(1);

/// Health of a backend. If several states apply, the first of away, frozen, full is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It answers and takes writes.
    Ok,
    /// It does not answer.
    Away(Outage),
    /// It answers, but takes no writes and no deletes, for this reason.
    Frozen(String),
    /// It has no space for bodies of this size and above.
    Full {
        /// The size in bytes.
        from_bytes: u64,
    },
}

impl Health {
    /// Name in status, logs and the readiness check.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Away(_) => "away",
            Self::Frozen(_) => "frozen",
            Self::Full { .. } => "full",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Away(outage) => write!(f, "away since {}: {}", outage.since, outage.error),
            Self::Frozen(reason) => write!(f, "frozen: {reason}"),
            Self::Full { from_bytes } => write!(f, "full: no space for {from_bytes} bytes"),
        }
    }
}

/// A time during which a backend did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// The first failed probe.
    pub since: Timestamp,
    /// The error of the last failed probe.
    pub error: String,
}

/// Result of the last probes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reachability {
    failures: u32,
    outage: Option<Outage>,
}

impl Reachability {
    /// The outage, after enough consecutive probes failed.
    #[must_use]
    pub fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref().filter(|_| self.failures >= FAILURES_UNTIL_AWAY)
    }

    /// Counts the result of a probe. One success ends an outage.
    pub(super) fn record(&mut self, answer: Result<(), String>, now: Timestamp) {
        let Err(error) = answer else {
            *self = Self::default();
            return;
        };
        let since = self.outage.as_ref().map_or(now, |outage| outage.since);
        self.failures = self.failures.saturating_add(1);
        self.outage = Some(Outage { since, error });
    }
}

/// A "no space" answer of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullMark {
    /// Bodies of this size and above do not fit.
    pub from_bytes: u64,
    /// When the answer was given.
    pub at: Timestamp,
}

impl FullMark {
    /// True if it still counts. A clock that was set back ends it, too.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        now >= self.at && now.since(self.at) < FULL_FOR
    }

    /// The mark after another "no space" answer.
    pub(super) fn merged(earlier: Option<Self>, size_bytes: u64, now: Timestamp) -> Self {
        let smallest = earlier.filter(|mark| mark.holds(now)).map_or(size_bytes, |mark| mark.from_bytes);
        Self { from_bytes: smallest.min(size_bytes), at: now }
    }
}

impl Fleet {
    /// Records that a backend had no space for a body of this size.
    pub fn record_no_space(&self, name: &BackendName, size_bytes: u64, now: Timestamp) {
        self.update_health(name, |state| {
            state.full = Some(FullMark::merged(state.full, size_bytes, now));
        });
    }

    /// Records that bytes were deleted from a backend, so that it may have space again.
    pub fn record_freed(&self, name: &BackendName) {
        if self.state(name).is_some_and(|state| state.full.is_some()) {
            self.update_health(name, |state| state.full = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FULL_FOR, FullMark, Reachability};
    use s3o_model::clock::Timestamp;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_millis(100_000);

    #[test]
    fn two_failed_probes_make_away_and_one_success_ends_it() {
        let mut probes = Reachability::default();
        probes.record(Err("first".to_owned()), NOW);
        assert_eq!(probes.outage(), None);
        probes.record(Ok(()), NOW);
        probes.record(Err("second".to_owned()), NOW);
        assert_eq!(probes.outage(), None, "a success was between the failures");
        probes.record(Err("third".to_owned()), NOW.after(Duration::from_secs(1)));
        let outage = probes.outage().expect("away");
        assert_eq!((outage.since, outage.error.as_str()), (NOW, "third"));
        probes.record(Ok(()), NOW);
        assert_eq!(probes.outage(), None);
    }

    #[test]
    fn full_mark_keeps_smallest_size_and_expires() {
        let mark = FullMark::merged(None, 10, NOW);
        let later = NOW.after(FULL_FOR / 2);
        assert_eq!(FullMark::merged(Some(mark), 20, later), FullMark { from_bytes: 10, at: later });
        assert!(mark.holds(later) && !mark.holds(NOW.after(FULL_FOR)));
        assert_eq!(FullMark::merged(Some(mark), 20, NOW.after(FULL_FOR)).from_bytes, 20);
        assert!(!mark.holds(Timestamp::from_millis(0)), "the clock was set back");
    }
}
