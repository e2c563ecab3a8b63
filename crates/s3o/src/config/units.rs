//! Durations and sizes as people write them.

use std::time::Duration;

const DURATIONS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// Nobody means a longer one, and sums with it must stay within what a catalog can hold.
const DURATION_MAX: Duration = Duration::from_hours(24 * 36_500);

/// `90s`, `5m`, `24h`, `500ms`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed = number_with_unit(text, &DURATIONS).map(Duration::from_millis);
    match parsed {
        Some(duration) if duration > DURATION_MAX => Err(format!("{text:?} is more than a hundred years")),
        Some(duration) => Ok(duration),
        None => Err(format!("{text:?} is not a duration such as 500ms, 90s, 5m or 24h")),
    }
}

/// `10GiB`, `500MB`, or a number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let plain = text.parse().ok();
    plain
        .or_else(|| number_with_unit(text, &SIZES))
        .ok_or_else(|| format!("{text:?} is not a size such as 10GiB, 500MB or a number of bytes"))
}

/// A size in the largest binary unit that shows it exactly.
pub fn shown(size_bytes: u64) -> String {
    let exact = |(name, factor): &&(&str, u64)| {
        name.ends_with("iB") && size_bytes >= *factor && size_bytes.is_multiple_of(*factor)
    };
    match SIZES.iter().rev().find(exact) {
        Some((name, factor)) => format!("{}{name}", size_bytes / factor),
        None => format!("{size_bytes}B"),
    }
}

fn number_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::{duration, shown, size};
    use std::time::Duration;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("24h"), Ok(Duration::from_hours(24)));
        for bad in ["5", "m", "-1s", "1.5h", "5 parsecs", ""] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown_exactly() {
        for (size_bytes, text) in [(4096, "4KiB"), (1 << 20, "1MiB"), (1500, "1500B"), (0, "0B"), (1 << 30, "1GiB")] {
            assert_eq!(shown(size_bytes), text);
        }
    }

    #[test]
    fn sizes_are_binary_or_decimal() {
        assert_eq!(size("10GiB"), Ok(10 << 30));
        assert_eq!(size("5 MB"), Ok(5_000_000));
        assert_eq!(size("123"), Ok(123));
        for bad in ["x", "10XB", "99999999999TiB", "-1"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
