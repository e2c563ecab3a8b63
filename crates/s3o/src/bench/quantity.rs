//! Sizes and durations of a plan, as they are typed and as they are shown.

use std::time::Duration;

const SIZES: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
    ("", 1),
];
const DURATIONS_MS: [(&str, u64); 3] = [("ms", 1), ("s", 1_000), ("m", 60_000)];

/// `4KiB`, `5MB`, or a number of bytes.
pub fn size(text: &str) -> Result<u64, String> {
    with_unit(text, &SIZES).ok_or_else(|| format!("{text:?} is not a size such as 4KiB, 1MiB or a number of bytes"))
}

/// `500ms`, `5s`, `1m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let millis = with_unit(text, &DURATIONS_MS).filter(|millis| *millis > 0);
    millis.map(Duration::from_millis).ok_or_else(|| format!("{text:?} is not a duration such as 500ms, 5s or 1m"))
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// A size in the largest binary unit that shows it exactly.
pub fn shown(size_bytes: u64) -> String {
    let exact = |(_, factor): &&(&str, u64)| size_bytes >= *factor && size_bytes.is_multiple_of(*factor);
    match SIZES.iter().filter(|(name, _)| name.ends_with("iB")).find(exact) {
        Some((name, factor)) => format!("{}{name}", size_bytes / factor),
        None => format!("{size_bytes}B"),
    }
}

/// A count as a number that can be divided.
pub fn float(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "what is counted here stays far below 2^53")]
    let number = count as f64;
    number
}

#[cfg(test)]
mod tests {
    use super::{duration, shown, size};
    use std::time::Duration;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, size_bytes) in [("4KiB", 4096), ("1MiB", 1 << 20), ("5MB", 5_000_000), ("123", 123), ("7B", 7)] {
            assert_eq!(size(text), Ok(size_bytes), "{text}");
        }
        for bad in ["", "KiB", "4 parsecs", "-1", "99999999999GiB"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        for (size_bytes, text) in [(4096, "4KiB"), (1 << 20, "1MiB"), (1500, "1500B"), (0, "0B"), (1 << 30, "1GiB")] {
            assert_eq!(shown(size_bytes), text);
        }
    }

    #[test]
    fn durations_have_a_unit_and_are_not_nothing() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["5", "0s", "s", "1.5s", ""] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
