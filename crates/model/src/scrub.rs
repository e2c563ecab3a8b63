//! Decisions of the scrubber: what two reads of one copy say, when it stops, and how far a pass should be by now.

use std::time::Duration;

use crate::clock::Timestamp;

/// Number of mismatches in one run below which the scrubber goes on, whatever their share.
const MISMATCHES_MAX: u64 = 100;
/// With more mismatches than this share of the copies that a run has read, the reader is probably wrong.
const MISMATCH_SHARE_MAX: f64 = 0.01;

/// What a copy's bytes were found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DigestVerdict {
    /// They have the digest of the content.
    Right,
    /// Two reads gave the same wrong digest: the stored bytes are wrong.
    Wrong,
    /// Two reads gave different digests: the memory, the network or a proxy of the reader changes bytes.
    ReaderFault,
    /// One read gave a wrong digest; a second one decides.
    ReadAgain,
}

impl DigestVerdict {
    /// Judges the reads of one copy so far.
    #[must_use]
    pub fn of<D: PartialEq>(expected: &D, first: &D, second: Option<&D>) -> Self {
        match second {
            _ if first == expected => Self::Right,
            None => Self::ReadAgain,
            Some(second) if second == first => Self::Wrong,
            Some(_) => Self::ReaderFault,
        }
    }
}

/// True if a run with this many mismatches among its `read` copies must stop before it accuses another one.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a share of numbers far below 2^52")]
pub fn accuses_too_many(mismatches: u64, read: u64) -> bool {
    mismatches >= MISMATCHES_MAX && mismatches as f64 > MISMATCH_SHARE_MAX * read as f64
}

/// How fast a pass reads: all of its copies within `cycle`, a share of them in every `interval`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrubPace {
    /// Time in which each copy is read once.
    pub cycle: Duration,
    /// Time between two runs.
    pub interval: Duration,
}

impl ScrubPace {
    /// Number of contents, of `total`, that a pass shall have reached at the end of a run at this time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn target(&self, total: u64, started_at: Timestamp, now: Timestamp) -> u64 {
        let elapsed = now.since(started_at) + self.interval;
        let share = elapsed.as_secs_f64() / self.cycle.as_secs_f64().max(f64::MIN_POSITIVE);
        if share >= 1.0 { u64::MAX } else { (total as f64 * share).ceil() as u64 }
    }

    /// True if a pass that began at this time is followed by the next one.
    #[must_use]
    pub fn is_over(&self, started_at: Timestamp, now: Timestamp) -> bool {
        now.since(started_at) >= self.cycle
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DigestVerdict, ScrubPace, accuses_too_many};
    use crate::clock::Timestamp;

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn only_two_equal_wrong_digests_accuse_a_copy() {
        assert_eq!(DigestVerdict::of(&1, &1, None), DigestVerdict::Right);
        assert_eq!(DigestVerdict::of(&1, &2, None), DigestVerdict::ReadAgain);
        assert_eq!(DigestVerdict::of(&1, &2, Some(&2)), DigestVerdict::Wrong);
        assert_eq!(DigestVerdict::of(&1, &2, Some(&3)), DigestVerdict::ReaderFault);
        assert_eq!(DigestVerdict::of(&1, &2, Some(&1)), DigestVerdict::ReaderFault);
    }

    #[test]
    fn a_hundred_mismatches_over_one_percent_stop_a_run() {
        assert!(!accuses_too_many(99, 99));
        assert!(accuses_too_many(100, 100));
        assert!(accuses_too_many(100, 9_999));
        assert!(!accuses_too_many(100, 10_000));
    }

    #[test]
    fn pass_is_spread_over_its_cycle() {
        let pace = ScrubPace { cycle: Duration::from_secs(100), interval: Duration::from_secs(10) };
        assert_eq!(pace.target(1000, at(50), at(50)), 100);
        assert_eq!(pace.target(1000, at(50), at(90)), 500);
        assert_eq!(pace.target(1000, at(50), at(140)), u64::MAX);
        assert_eq!(pace.target(7, at(50), at(50)), 1);
        assert!(!pace.is_over(at(50), at(149)) && pace.is_over(at(50), at(150)));
    }

    #[test]
    fn run_as_long_as_the_cycle_reads_everything() {
        let pace = ScrubPace { cycle: Duration::from_secs(10), interval: Duration::from_secs(10) };
        assert_eq!(pace.target(1000, at(0), at(0)), u64::MAX);
    }
}
