//! Converts between the five checksum fields of S3 and one [`Checksum`].

use http::HeaderMap;
use md5::Digest as _;
use s3o_model::checksum::{Algorithm, Checksum, Coverage};
use s3s::dto::{ChecksumAlgorithm, ChecksumType};

use super::refusal::Refusal;

/// The checksum fields of S3 inputs and outputs; at most one of them is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChecksumFields {
    pub crc32: Option<String>,
    pub crc32c: Option<String>,
    pub crc64nvme: Option<String>,
    pub sha1: Option<String>,
    pub sha256: Option<String>,
}

impl ChecksumFields {
    /// The field of the checksum's algorithm, the others `None`.
    pub fn of(checksum: Option<&Checksum>) -> Self {
        let mut fields = Self::default();
        let Some(checksum) = checksum else { return fields };
        let field = match checksum.algorithm {
            Algorithm::Crc32 => &mut fields.crc32,
            Algorithm::Crc32c => &mut fields.crc32c,
            Algorithm::Crc64nvme => &mut fields.crc64nvme,
            Algorithm::Sha1 => &mut fields.sha1,
            Algorithm::Sha256 => &mut fields.sha256,
        };
        *field = Some(checksum.value.clone());
        fields
    }

    /// The one checksum that is set; more than one is refused.
    pub fn only(self) -> Result<Option<Checksum>, Refusal> {
        let values = [self.crc32, self.crc32c, self.crc64nvme, self.sha1, self.sha256];
        let mut given =
            Algorithm::ALL.into_iter().zip(values).filter_map(|(algorithm, value)| Some((algorithm, value?)));
        let Some((algorithm, value)) = given.next() else { return Ok(None) };
        if given.next().is_some() {
            let message = "Expecting a single x-amz-checksum- header. Multiple checksum types are not allowed.";
            return Err(Refusal::because("InvalidRequest", message));
        }
        checked(algorithm, value).map(Some)
    }
}

/// Takes the checksum fields from any input that has them.
macro_rules! fields {
    ($from:expr) => {
        $crate::s3::checksums::ChecksumFields {
            crc32: $from.checksum_crc32.take(),
            crc32c: $from.checksum_crc32c.take(),
            crc64nvme: $from.checksum_crc64nvme.take(),
            sha1: $from.checksum_sha1.take(),
            sha256: $from.checksum_sha256.take(),
        }
    };
}
pub(super) use fields;

/// The checksum that a request's headers declare for its body.
pub fn from_headers(headers: &HeaderMap) -> Result<Option<Checksum>, Refusal> {
    let header = |algorithm| headers.get(header_name(algorithm)).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let fields = ChecksumFields {
        crc32: header(Algorithm::Crc32),
        crc32c: header(Algorithm::Crc32c),
        crc64nvme: header(Algorithm::Crc64nvme),
        sha1: header(Algorithm::Sha1),
        sha256: header(Algorithm::Sha256),
    };
    fields.only()
}

fn checked(algorithm: Algorithm, value: String) -> Result<Checksum, Refusal> {
    // A composite checksum ends in the number of parts.
    let (digest, coverage) = match value.split_once('-') {
        Some((digest, parts)) if parts.parse::<u32>().is_ok() => (digest, Coverage::Composite),
        Some(_) | None => (value.as_str(), Coverage::FullObject),
    };
    let decoded = base64_simd::STANDARD.decode_to_vec(digest);
    if decoded.is_ok_and(|bytes| bytes.len() == algorithm.digest_bytes()) {
        return Ok(Checksum { algorithm, value, coverage });
    }
    Err(Refusal::because("InvalidRequest", format!("Value for {} header is invalid.", header_name(algorithm))))
}

/// The header that carries a checksum of this algorithm.
pub const fn header_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Crc32 => "x-amz-checksum-crc32",
        Algorithm::Crc32c => "x-amz-checksum-crc32c",
        Algorithm::Crc64nvme => "x-amz-checksum-crc64nvme",
        Algorithm::Sha1 => "x-amz-checksum-sha1",
        Algorithm::Sha256 => "x-amz-checksum-sha256",
    }
}

/// The algorithm of this name; an unknown one is refused.
pub fn algorithm(name: &str) -> Result<Algorithm, Refusal> {
    let known = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name));
    known.ok_or_else(|| Refusal::because("InvalidRequest", "Checksum algorithm provided is unsupported."))
}

/// The name of the algorithm in responses.
pub fn algorithm_name(algorithm: Algorithm) -> ChecksumAlgorithm {
    ChecksumAlgorithm::from_static(algorithm.name())
}

/// The checksum type in responses.
pub fn type_of(coverage: Coverage) -> ChecksumType {
    ChecksumType::from_static(match coverage {
        Coverage::FullObject => ChecksumType::FULL_OBJECT,
        Coverage::Composite => ChecksumType::COMPOSITE,
    })
}

/// Parses `x-amz-checksum-type`.
pub fn coverage(stated: &ChecksumType) -> Result<Coverage, Refusal> {
    match stated.as_str() {
        ChecksumType::FULL_OBJECT => Ok(Coverage::FullObject),
        ChecksumType::COMPOSITE => Ok(Coverage::Composite),
        _ => Err(Refusal::because("InvalidRequest", "Value for x-amz-checksum-type header is invalid.")),
    }
}

/// The checksum of an XML document, in base64.
pub fn digest(algorithm: Algorithm, bytes: &[u8]) -> String {
    use crc_fast::CrcAlgorithm;
    let crc = |kind, length: usize| crc_fast::checksum(kind, bytes).to_be_bytes()[8 - length..].to_vec();
    let digest = match algorithm {
        Algorithm::Crc32 => crc(CrcAlgorithm::Crc32IsoHdlc, 4),
        Algorithm::Crc32c => crc(CrcAlgorithm::Crc32Iscsi, 4),
        Algorithm::Crc64nvme => crc(CrcAlgorithm::Crc64Nvme, 8),
        Algorithm::Sha1 => sha1::Sha1::digest(bytes).to_vec(),
        Algorithm::Sha256 => sha2::Sha256::digest(bytes).to_vec(),
    };
    base64_simd::STANDARD.encode_to_string(digest)
}

#[cfg(test)]
mod tests {
    use super::{ChecksumFields, algorithm, digest};
    use s3o_model::checksum::{Algorithm, Coverage};

    #[test]
    fn digests_equal_the_published_check_values() {
        // CRC check values of "123456789" from the catalogue of parametrised CRC algorithms.
        let check = b"123456789";
        assert_eq!(digest(Algorithm::Crc32, check), "y/Q5Jg==");
        assert_eq!(digest(Algorithm::Crc32c, check), "4waSgw==");
        assert_eq!(digest(Algorithm::Crc64nvme, check), "rosUhgp5mIg=");
        assert_eq!(digest(Algorithm::Sha1, b""), "2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
    }

    #[test]
    fn checksum_fields_round_trip() {
        let value = digest(Algorithm::Sha256, b"x");
        let fields = ChecksumFields { sha256: Some(value.clone()), ..ChecksumFields::default() };
        let checksum = fields.clone().only().unwrap().unwrap();
        assert_eq!((checksum.algorithm, checksum.coverage), (Algorithm::Sha256, Coverage::FullObject));
        assert_eq!(ChecksumFields::of(Some(&checksum)), fields);
        let composite = ChecksumFields { crc32: Some("y/Q5Jg==-3".into()), ..ChecksumFields::default() };
        assert_eq!(composite.only().unwrap().unwrap().coverage, Coverage::Composite);
    }

    #[test]
    fn malformed_and_multiple_values_are_refused() {
        for value in ["", "!!", "y/Q5", "y/Q5Jg==-x"] {
            let fields = ChecksumFields { crc32: Some(value.into()), ..ChecksumFields::default() };
            assert_eq!(fields.only().unwrap_err().code, "InvalidRequest", "{value}");
        }
        let both = ChecksumFields {
            crc32: Some("y/Q5Jg==".into()),
            crc32c: Some("4waSgw==".into()),
            ..ChecksumFields::default()
        };
        assert_eq!(both.only().unwrap_err().code, "InvalidRequest");
        assert!(ChecksumFields::default().only().unwrap().is_none());
    }

    #[test]
    fn algorithm_names_ignore_case() {
        assert_eq!(algorithm("crc32c").unwrap(), Algorithm::Crc32c);
        assert_eq!(algorithm("md5").unwrap_err().code, "InvalidRequest");
    }
}
