//! The checksums that S3 clients declare and read back.

use serde::{Deserialize, Serialize};

/// A checksum algorithm of S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Algorithm {
    /// CRC-32 (ISO-HDLC).
    Crc32,
    /// CRC-32C (iSCSI).
    Crc32c,
    /// CRC-64/NVME.
    Crc64nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64nvme, Self::Sha1, Self::Sha256];

    /// The name S3 gives it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// How many bytes a digest has.
    #[must_use]
    pub const fn digest_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
}

/// Whether a checksum covers the object's bytes or its parts' checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Coverage {
    /// Over the bytes.
    FullObject,
    /// Over the checksums of the parts.
    Composite,
}

/// One checksum: its algorithm, its value in base64 as S3 writes it, what it covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The value in base64; a composite one ends in `-<number of parts>`.
    pub value: String,
    /// What it covers.
    pub coverage: Coverage,
}
