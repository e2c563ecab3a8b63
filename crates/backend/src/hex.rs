//! Bytes as lower-case hexadecimal digits, the form in which stores write their digests.

use std::fmt::Write as _;

/// The digits of these bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}
