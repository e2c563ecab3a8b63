//! Section `integrity`: reads of stored bytes that compare their digests.

use std::time::Duration;

use s3o_model::scrub::ScrubPace;

use super::read::Section;
use super::sections::flag;

/// Section `integrity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegrityConfig {
    /// False: `scrubber` runs only on request.
    pub enabled: bool,
    /// Interval of `scrubber`, and the time in which it reads every copy once.
    pub pace: ScrubPace,
    /// Number of contents in one page of a pass.
    pub batch_size: usize,
}

const INTERVAL: Duration = Duration::from_hours(6);
const CYCLE: Duration = Duration::from_hours(720);
/// Largest number of contents in one page.
const BATCH_MAX: usize = 1000;

pub(super) fn integrity(section: Section<'_>) -> IntegrityConfig {
    section.not_built(&["verify_on_read"]);
    let (interval, cycle) = (section.duration("scrubber_interval", INTERVAL), section.duration("cycle", CYCLE));
    if interval > cycle {
        section.fault("scrubber_interval", "it is longer than integrity.cycle, use at most the cycle");
    }
    let integrity = IntegrityConfig {
        enabled: section.read("enabled", flag).unwrap_or(false),
        pace: ScrubPace { cycle, interval },
        batch_size: section.count_up_to("batch_size", 1000, BATCH_MAX),
    };
    section.finish();
    integrity
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3o_model::scrub::ScrubPace;

    use super::super::tests::{DISK, parse};
    use super::IntegrityConfig;

    #[test]
    fn integrity_is_disabled_with_a_cycle_of_thirty_days_by_default() {
        let pace = ScrubPace { cycle: Duration::from_hours(720), interval: Duration::from_hours(6) };
        let expected = IntegrityConfig { enabled: false, pace, batch_size: 1000 };
        assert_eq!(parse(DISK).expect("valid").integrity, expected);
        let all = "integrity: {enabled: true, scrubber_interval: 1m, cycle: 1h, batch_size: 10}";
        let pace = ScrubPace { cycle: Duration::from_hours(1), interval: Duration::from_mins(1) };
        let expected = IntegrityConfig { enabled: true, pace, batch_size: 10 };
        assert_eq!(parse(&format!("{DISK}{all}")).expect("valid").integrity, expected);
    }

    #[test]
    fn interval_above_the_cycle_is_refused() {
        let faults = parse(&format!("{DISK}integrity: {{scrubber_interval: 2h, cycle: 1h}}")).expect_err("refused");
        assert!(faults.contains("integrity.scrubber_interval: "), "{faults}");
    }
}
