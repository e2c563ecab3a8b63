//! ETags and digests.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An MD5 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Md5(pub [u8; 16]);

/// A SHA-256 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sha256(pub [u8; 32]);

/// An ETag without its quotes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ETag(String);

impl ETag {
    /// The ETag of an object that was not uploaded in parts.
    #[must_use]
    pub fn of_whole(md5: Md5) -> Self {
        Self(md5.to_string())
    }

    /// The ETag of an object uploaded in parts, from the digest of the parts' digests.
    #[must_use]
    pub fn of_parts(md5_of_md5s: Md5, parts: usize) -> Self {
        Self(format!("{md5_of_md5s}-{parts}"))
    }

    /// Reads an ETag with or without quotes.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(text.trim().trim_matches('"').to_owned())
    }

    /// The ETag without quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for Md5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

/// The text is not a hexadecimal digest of the right length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a hexadecimal digest of the right length")]
pub struct InvalidDigest;

fn read_hex<const N: usize>(text: &str) -> Result<[u8; N], InvalidDigest> {
    if text.len() != N * 2 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(InvalidDigest);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| InvalidDigest)?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidDigest)?;
    }
    Ok(bytes)
}

impl FromStr for Md5 {
    type Err = InvalidDigest;
    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        read_hex(text).map(Self)
    }
}

impl FromStr for Sha256 {
    type Err = InvalidDigest;
    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        read_hex(text).map(Self)
    }
}

/// Encodes bytes as lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::{ETag, InvalidDigest, Md5};

    #[test]
    fn digests_parse_from_their_text() {
        let md5 = Md5([0xab; 16]);
        assert_eq!(md5.to_string().parse(), Ok(md5));
        assert_eq!("zz".parse::<Md5>(), Err(InvalidDigest));
        assert_eq!("+1".repeat(16).parse::<Md5>(), Err(InvalidDigest));
    }

    #[test]
    fn etags_compare_without_quotes() {
        assert_eq!(ETag::from_text("\"abc\""), ETag::from_text("abc"));
        assert_eq!(ETag::of_parts(Md5([0; 16]), 3).as_str(), "00000000000000000000000000000000-3");
    }
}
