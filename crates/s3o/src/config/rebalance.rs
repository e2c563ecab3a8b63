//! Section `rebalance`: moves of copies between backends.

use std::time::Duration;

use s3o_model::placement::Strategy;
use s3o_model::rebalance::RebalanceRules;

use super::read::Section;
use super::sections::{flag, strategy};

/// Section `rebalance`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RebalanceConfig {
    /// False: `rebalancer` runs only on request.
    pub enabled: bool,
    /// Interval of `rebalancer`.
    pub interval: Duration,
    pub rules: RebalanceRules,
    /// Number of copies of one backend that are read and sorted together.
    pub batch_size: usize,
    /// Number of copies that are moved in parallel.
    pub concurrency: usize,
}

const INTERVAL: Duration = Duration::from_hours(6);
/// Largest number of copies in one page.
const BATCH_MAX: usize = 1000;
const THRESHOLD: f64 = 0.1;

pub(super) fn rebalance(section: Section<'_>) -> RebalanceConfig {
    let rebalance = RebalanceConfig {
        enabled: section.read("enabled", flag).unwrap_or(false),
        interval: section.duration("interval", INTERVAL),
        rules: RebalanceRules {
            strategy: section.read("strategy", strategy).unwrap_or(Strategy::Spread),
            threshold: section.read("threshold", threshold).unwrap_or(THRESHOLD),
        },
        batch_size: section.count_up_to("batch_size", 1000, BATCH_MAX),
        concurrency: section.count("concurrency", 4),
    };
    section.finish();
    rebalance
}

fn threshold(text: &str) -> Result<f64, String> {
    let threshold = text.parse().ok().filter(|threshold: &f64| *threshold > 0.0 && *threshold <= 1.0);
    threshold.ok_or_else(|| format!("{text:?} is not allowed, use a number above 0 and up to 1"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3o_model::placement::Strategy;
    use s3o_model::rebalance::RebalanceRules;

    use super::super::RebalanceConfig;
    use super::super::tests::{DISK, parse};

    #[test]
    fn rebalance_is_disabled_and_spreads_by_default() {
        let expected = RebalanceConfig {
            enabled: false,
            interval: Duration::from_hours(6),
            rules: RebalanceRules { strategy: Strategy::Spread, threshold: 0.1 },
            batch_size: 1000,
            concurrency: 4,
        };
        assert_eq!(parse(DISK).expect("valid").rebalance, expected);
        let all = "rebalance: {enabled: true, interval: 1m, strategy: pack, threshold: 0.25, batch_size: 10, \
                   concurrency: 2}";
        let expected = RebalanceConfig {
            enabled: true,
            interval: Duration::from_mins(1),
            rules: RebalanceRules { strategy: Strategy::Pack, threshold: 0.25 },
            batch_size: 10,
            concurrency: 2,
        };
        assert_eq!(parse(&format!("{DISK}{all}")).expect("valid").rebalance, expected);
    }

    #[test]
    fn thresholds_out_of_range_are_refused() {
        for wrong in ["0", "-0.1", "1.1", "half", "NaN"] {
            let faults = parse(&format!("{DISK}rebalance: {{threshold: {wrong}}}")).expect_err(wrong);
            assert!(faults.contains("rebalance.threshold: "), "{faults}");
        }
    }
}
