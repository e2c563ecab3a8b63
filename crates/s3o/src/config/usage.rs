//! Section `usage_flush`, and the usage limits of a backend.

use std::time::Duration;

use s3o_model::usage::{Permille, UsageLimits, UsageTotals};

use super::read::Section;
use super::sections::flag;
use super::units;

/// A shorter interval would write to the catalog all the time.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Settings of the worker `usage_flush`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageFlushConfig {
    /// Time between two flushes.
    pub interval: Duration,
    /// True to flush more often while a backend is near a limit.
    pub adaptive: bool,
    /// Interval while a backend is near a limit.
    pub fast_interval: Duration,
    /// Share of a limit from which a backend is near it: background work stops there.
    pub adaptive_threshold: Permille,
}

pub(super) fn usage_flush(section: Section<'_>) -> UsageFlushConfig {
    let above_zero =
        |field, seconds| section.duration_within(field, Duration::from_secs(seconds), INTERVAL_MIN.., "1ms or more");
    let flush = UsageFlushConfig {
        interval: above_zero("interval", 30),
        adaptive: section.read("adaptive", flag).unwrap_or(true),
        fast_interval: above_zero("fast_interval", 5),
        adaptive_threshold: section.read("adaptive_threshold", share).unwrap_or(Permille(800)),
    };
    section.finish();
    flush
}

/// A share from 0 to 1, as thousandths.
fn share(text: &str) -> Result<Permille, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    let share = share.ok_or_else(|| format!("{text:?} is not allowed, use a number from 0 to 1"))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number is between 0 and 1000")]
    Ok(Permille((share * 1000.0).round() as u16))
}

/// The usage limits of a backend; 0 means no limit.
pub(super) fn limits(section: &Section<'_>) -> UsageLimits {
    let count = |text: &str| {
        text.parse::<u64>().map_err(|_| format!("{text:?} is not allowed, use a whole number; 0 means no limit"))
    };
    UsageLimits::new(UsageTotals {
        requests: section.read("api_request_limit", count).unwrap_or(0),
        egress_bytes: section.read("egress_byte_limit", units::size).unwrap_or(0),
        ingress_bytes: section.read("ingress_byte_limit", units::size).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::UsageFlushConfig;
    use s3o_model::usage::{Permille, UsageKind};
    use std::time::Duration;

    fn parse(settings: &str, backend: &str) -> Result<Config, String> {
        let text = format!("backends: [{{name: disk, kind: fs, root: /tmp/x{backend}}}]\n{settings}");
        Config::parse(&text, |_| None).map_err(|faults| faults.to_string())
    }

    #[test]
    fn usage_is_flushed_every_half_minute_and_unlimited_by_default() {
        let config = parse("", "").expect("valid");
        let (interval, fast_interval) = (Duration::from_secs(30), Duration::from_secs(5));
        let expected = UsageFlushConfig { interval, adaptive: true, fast_interval, adaptive_threshold: Permille(800) };
        assert_eq!(config.usage_flush, expected);
        assert!(!config.backends[0].usage_limits.is_limited());
    }

    #[test]
    fn limits_and_threshold_are_read() {
        let limits = ", api_request_limit: 5000, egress_byte_limit: 1GiB, ingress_byte_limit: 0";
        let config = parse("usage_flush: {adaptive_threshold: 0.95}\n", limits).expect("valid");
        let limits = config.backends[0].usage_limits;
        assert_eq!(UsageKind::ALL.map(|kind| limits.of(kind)), [Some(5000), Some(1 << 30), None]);
        assert_eq!(config.usage_flush.adaptive_threshold, Permille(950));
    }

    #[test]
    fn invalid_usage_settings_are_refused_with_their_path() {
        for (settings, backend, path) in [
            ("usage_flush: {interval: 0s}\n", "", "usage_flush.interval: 0s is not allowed"),
            ("usage_flush: {adaptive_threshold: 80}\n", "", "usage_flush.adaptive_threshold: \"80\" is not allowed"),
            ("usage_flush: {adaptive: maybe}\n", "", "usage_flush.adaptive: "),
            ("usage_flush: {colour: red}\n", "", "usage_flush.colour: is not a known setting"),
            ("", ", api_request_limit: -1", "backends[0].api_request_limit: \"-1\" is not allowed"),
            ("", ", egress_byte_limit: much", "backends[0].egress_byte_limit: "),
        ] {
            let faults = parse(settings, backend).expect_err(path);
            assert!(faults.contains(path), "{faults}");
        }
    }
}
