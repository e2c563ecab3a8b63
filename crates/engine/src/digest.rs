//! Computes all digests of a body in one pass: MD5, SHA-256, and the checksum that a client requested.

use base64_simd::STANDARD as BASE64;
use crc_fast::{CrcAlgorithm, Digest as Crc};
use md5::Digest as _;
use s3o_model::checksum::{Algorithm, Checksum, Coverage};
use s3o_model::etag::{Md5, Sha256};

/// The digests of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digests {
    /// Becomes the `ETag`.
    pub md5: Md5,
    /// Identifies equal content in buckets that deduplicate.
    pub sha256: Sha256,
    /// The requested checksum.
    pub checksum: Option<Checksum>,
}

enum Extra {
    Crc(Algorithm, Box<Crc>),
    Sha1(Box<sha1::Sha1>),
    /// Equal to the SHA-256 that is always computed.
    Sha256,
}

/// Computes digests incrementally.
pub struct Hasher {
    md5: md5::Md5,
    sha256: sha2::Sha256,
    extra: Option<Extra>,
}

/// The CRC parameters of an S3 algorithm; `None` if it is no CRC.
#[must_use]
pub const fn crc_of(algorithm: Algorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        Algorithm::Crc64nvme => Some(CrcAlgorithm::Crc64Nvme),
        Algorithm::Sha1 | Algorithm::Sha256 => None,
    }
}

impl Hasher {
    /// Computes MD5 and SHA-256, and this checksum.
    #[must_use]
    pub fn new(checksum: Option<Algorithm>) -> Self {
        let extra = checksum.map(|algorithm| match (crc_of(algorithm), algorithm) {
            (Some(crc), _) => Extra::Crc(algorithm, Box::new(Crc::new(crc))),
            (None, Algorithm::Sha1) => Extra::Sha1(Box::default()),
            (None, _) => Extra::Sha256,
        });
        Self { md5: md5::Md5::new(), sha256: sha2::Sha256::new(), extra }
    }

    /// Adds the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        self.sha256.update(bytes);
        match &mut self.extra {
            Some(Extra::Crc(_, crc)) => crc.update(bytes),
            Some(Extra::Sha1(sha1)) => sha1.update(bytes),
            Some(Extra::Sha256) | None => {}
        }
    }

    /// The digests of all bytes that were added.
    #[must_use]
    pub fn finish(self) -> Digests {
        let sha256 = Sha256(self.sha256.finalize().into());
        let checksum = self.extra.map(|extra| match extra {
            Extra::Crc(algorithm, crc) => full_object(algorithm, &crc_bytes(algorithm, crc.finalize())),
            Extra::Sha1(sha1) => full_object(Algorithm::Sha1, &sha1.finalize()),
            Extra::Sha256 => full_object(Algorithm::Sha256, &sha256.0),
        });
        Digests { md5: Md5(self.md5.finalize().into()), sha256, checksum }
    }
}

/// A CRC in the byte order of S3: big endian, in the digest length of the algorithm.
#[must_use]
pub fn crc_bytes(algorithm: Algorithm, crc: u64) -> Vec<u8> {
    crc.to_be_bytes()[8 - algorithm.digest_bytes()..].to_vec()
}

/// A checksum of the bytes of a whole object, from its digest.
#[must_use]
pub fn full_object(algorithm: Algorithm, digest: &[u8]) -> Checksum {
    Checksum { algorithm, value: BASE64.encode_to_string(digest), coverage: Coverage::FullObject }
}

/// Hashes bytes that are complete in memory.
#[must_use]
pub fn md5_of(bytes: &[u8]) -> Md5 {
    Md5(md5::Md5::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::Hasher;
    use s3o_model::checksum::Algorithm;

    fn checksum(algorithm: Algorithm) -> String {
        let mut hasher = Hasher::new(Some(algorithm));
        hasher.update(b"1234");
        hasher.update(b"56789");
        hasher.finish().checksum.expect("requested").value
    }

    #[test]
    fn checksums_match_their_published_check_values() {
        // The check values of "123456789": cbf43926, e3069283, ae8b14860a799888.
        assert_eq!(checksum(Algorithm::Crc32), "y/Q5Jg==");
        assert_eq!(checksum(Algorithm::Crc32c), "4waSgw==");
        assert_eq!(checksum(Algorithm::Crc64nvme), "rosUhgp5mIg=");
        assert_eq!(checksum(Algorithm::Sha1), "98O8HYCOBHMq32eZZczDTKeuNEE=");
        assert_eq!(checksum(Algorithm::Sha256), "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=");
    }

    #[test]
    fn md5_and_sha256_are_always_computed() {
        let digests = Hasher::new(None).finish();
        assert_eq!(digests.md5.to_string(), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(digests.checksum, None);
    }
}
