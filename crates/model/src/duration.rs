//! Durations as people write them.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Nobody means a longer one, and sums with it must stay within what a catalog can hold.
pub const DURATION_MAX: Duration = Duration::from_hours(24 * 36_500);

/// `90s`, `5m`, `24h`, `500ms`.
pub fn parse(text: &str) -> Result<Duration, String> {
    match number_with_unit(text, &UNITS).map(Duration::from_millis) {
        Some(duration) if duration > DURATION_MAX => Err(format!("{text:?} is more than a hundred years")),
        Some(duration) => Ok(duration),
        None => Err(format!("{text:?} is not a duration such as 500ms, 90s, 5m or 24h")),
    }
}

/// A number times the factor of the unit that follows it.
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
    fn durations_have_a_unit() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("24h"), Ok(Duration::from_hours(24)));
        for bad in ["5", "m", "-1s", "1.5h", "5 parsecs", ""] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_hundred_years_are_the_most() {
        assert!(parse("36500d").is_ok());
        assert!(parse("36501d").is_err());
        assert!(parse("99999999999999999999d").is_err());
    }
}
