//! Section `reconcile`: passes that compare backends with the catalog.

use std::time::Duration;

use s3o_workers::ReconcileSettings;

use super::read::Section;
use super::sections::flag;

const DAY: Duration = Duration::from_hours(24);
/// Zero would begin passes without a pause.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
const DELETE_FRACTION: f64 = 0.01;

pub(super) fn reconcile(section: Section<'_>) -> ReconcileSettings {
    let reconcile = ReconcileSettings {
        enabled: section.read("enabled", flag).unwrap_or(false),
        interval: section.duration_within("interval", DAY, INTERVAL_MIN.., "1ms or more"),
        grace: section.duration("grace", DAY),
        max_delete_fraction: section.read("max_delete_fraction", fraction).unwrap_or(DELETE_FRACTION),
    };
    section.finish();
    reconcile
}

fn fraction(text: &str) -> Result<f64, String> {
    let fraction = text.parse().ok().filter(|fraction: &f64| (0.0..=1.0).contains(fraction));
    fraction.ok_or_else(|| format!("{text:?} is not allowed, use a number from 0 to 1"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3o_workers::ReconcileSettings;

    use super::super::tests::{DISK, parse};

    #[test]
    fn reconcile_is_disabled_and_waits_a_day_by_default() {
        let day = Duration::from_hours(24);
        let expected = ReconcileSettings { enabled: false, interval: day, grace: day, max_delete_fraction: 0.01 };
        assert_eq!(parse(DISK).expect("valid").reconcile, expected);
        let all = "reconcile: {enabled: true, interval: 1h, grace: 500ms, max_delete_fraction: 0.5}";
        let (interval, grace) = (Duration::from_hours(1), Duration::from_millis(500));
        let expected = ReconcileSettings { enabled: true, interval, grace, max_delete_fraction: 0.5 };
        assert_eq!(parse(&format!("{DISK}{all}")).expect("valid").reconcile, expected);
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for wrong in
            ["max_delete_fraction: -0.1", "max_delete_fraction: 1.1", "max_delete_fraction: NaN", "interval: 0s"]
        {
            let faults = parse(&format!("{DISK}reconcile: {{{wrong}}}")).expect_err(wrong);
            let path = wrong.split(':').next().expect("a name");
            assert!(faults.contains(&format!("reconcile.{path}: ")), "{faults}");
        }
    }
}
