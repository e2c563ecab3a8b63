//! Parsing of durations such as `90s` or `24h`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Longest accepted duration, about a hundred years; sums with it fit into the catalog's integers.
pub const DURATION_MAX: Duration = Duration::from_hours(24 * 36_500);

/// Parses a number with a unit: `ms`, `s`, `m`, `h` or `d`.
pub fn parse(text: &str) -> Result<Duration, String> {
    match number_with_unit(text, &UNITS).map(Duration::from_millis) {
        Some(duration) if duration > DURATION_MAX => Err(format!("{text:?} is too long, at most 36500d are allowed")),
        Some(duration) => Ok(duration),
        None => Err(format!("{text:?} is not a duration such as 500ms, 90s, 5m or 24h")),
    }
}

/// Parses a number and a unit; returns the number times the unit's factor.
#[must_use]
pub fn number_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::parse;
    use std::time::Duration;

    #[test]
    fn duration_needs_a_unit() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("24h"), Ok(Duration::from_hours(24)));
        for bad in ["5", "m", "-1s", "1.5h", "5 parsecs", ""] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_limited_to_a_hundred_years() {
        assert!(parse("36500d").is_ok());
        assert!(parse("36501d").is_err());
        assert!(parse("99999999999999999999d").is_err());
    }
}
