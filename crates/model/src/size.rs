//! Sizes with a unit, as in configuration files and on the command line.

use crate::duration::number_with_unit;

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

/// Parses `10GiB`, `500MB`, or a number of bytes.
pub fn parse(text: &str) -> Result<u64, String> {
    let plain = text.parse().ok();
    plain
        .or_else(|| number_with_unit(text, &SIZES))
        .ok_or_else(|| format!("{text:?} is not a size such as 10GiB, 500MB or a number of bytes"))
}

/// Formats a size in the largest binary unit that represents it exactly.
#[must_use]
pub fn format_exact(size_bytes: u64) -> String {
    let exact = |(name, factor): &&(&str, u64)| {
        name.ends_with("iB") && size_bytes >= *factor && size_bytes.is_multiple_of(*factor)
    };
    match SIZES.iter().rev().find(exact) {
        Some((name, factor)) => format!("{}{name}", size_bytes / factor),
        None => format!("{size_bytes}B"),
    }
}

#[cfg(test)]
mod tests {
    use super::{format_exact, parse};

    #[test]
    fn sizes_are_formatted_exactly() {
        for (size_bytes, text) in [(4096, "4KiB"), (1 << 20, "1MiB"), (1500, "1500B"), (0, "0B"), (1 << 30, "1GiB")] {
            assert_eq!(format_exact(size_bytes), text);
        }
    }

    #[test]
    fn units_are_binary_or_decimal() {
        assert_eq!(parse("10GiB"), Ok(10 << 30));
        assert_eq!(parse("5 MB"), Ok(5_000_000));
        assert_eq!(parse("123"), Ok(123));
        for bad in ["x", "10XB", "99999999999TiB", "-1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
