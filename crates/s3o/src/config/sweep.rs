//! Section `sweep`. Only the retention is built; the variable `S3O_CLEANUP_RETENTION_DURATION` overrides it.

use std::time::Duration;

use super::faults::Faults;
use super::read::Section;
use super::{Config, units};

/// Overrides `sweep.retention`.
const RETENTION_VARIABLE: &str = "S3O_CLEANUP_RETENTION_DURATION";
const RETENTION: Duration = Duration::from_hours(168);
/// A later moment cannot be stored.
const RETENTION_MAX: Duration = Duration::from_hours(24 * 365 * 100);

/// Section `sweep`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepConfig {
    /// How long objects stay in trash at least.
    pub retention: Duration,
}

pub(super) fn sweep(section: Section<'_>) -> SweepConfig {
    section.not_built(&["enabled", "interval", "sources"]);
    let sweep = SweepConfig { retention: section.read("retention", retention).unwrap_or(RETENTION) };
    section.finish();
    sweep
}

fn retention(text: &str) -> Result<Duration, String> {
    match units::duration(text)? {
        retention if retention <= RETENTION_MAX => Ok(retention),
        _ => Err(format!("{text} is not allowed, use at most 100 years: {}h", RETENTION_MAX.as_secs() / 3600)),
    }
}

impl Config {
    /// Replaces the settings that environment variables override.
    pub fn overridden(self) -> Result<Self, Faults> {
        self.overridden_by(|name| std::env::var(name).ok())
    }

    fn overridden_by(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Faults> {
        if let Some(text) = variable(RETENTION_VARIABLE) {
            let fault = |message| Faults::one(RETENTION_VARIABLE, message);
            self.sweep.retention = retention(&text).map_err(fault)?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{DISK, parse};

    #[test]
    fn retention_of_trash_is_a_week_unless_set() {
        assert_eq!(parse(DISK).expect("valid").sweep.retention, Duration::from_hours(168));
        let config = parse(&format!("{DISK}sweep: {{retention: 36h}}\n")).expect("valid");
        assert_eq!(config.sweep.retention, Duration::from_hours(36));
        let faults = parse(&format!("{DISK}sweep: {{retention: 900000h}}\n")).expect_err("too long");
        assert!(faults.starts_with("sweep.retention: "), "{faults}");
    }

    #[test]
    fn retention_variable_overrides_the_setting() {
        let config = || parse(&format!("{DISK}sweep: {{retention: 36h}}\n")).expect("valid");
        let with = |value: &'static str| config().overridden_by(move |_| Some(value.to_owned()));
        assert_eq!(with("2h").expect("valid").sweep.retention, Duration::from_hours(2));
        assert_eq!(config().overridden_by(|_| None).expect("valid").sweep.retention, Duration::from_hours(36));
        let faults = with("soon").expect_err("no duration").to_string();
        assert!(faults.starts_with("S3O_CLEANUP_RETENTION_DURATION: "), "{faults}");
    }
}
