//! `ETag` and checksum of an object that was uploaded in parts.

use base64_simd::STANDARD as BASE64;
use s3o_model::checksum::{Algorithm, Checksum, Coverage};
use s3o_model::etag::{ETag, hex};
use s3o_model::multipart::{ListedPart, Part, UploadChecksum};

use crate::Error;
use crate::digest::{Hasher, crc_bytes, crc_of, full_object, md5_of};

/// MD5 of the MD5s of the parts, and their number.
pub(super) fn etag(parts: &[&Part]) -> ETag {
    let digests: Vec<u8> = parts.iter().flat_map(|part| part.md5.0).collect();
    ETag::of_parts(md5_of(&digests), parts.len())
}

/// Digest of the parts in a request, to recognise a repeated request.
pub(super) fn fingerprint(parts: &[ListedPart]) -> String {
    let text = parts.iter().fold(String::new(), |text, part| text + &format!("{}:{};", part.number, part.etag));
    hex(&md5_of(text.as_bytes()).0)
}

/// Computes the checksum of the object from those of its parts.
pub(super) fn checksum(requested: Option<UploadChecksum>, parts: &[&Part]) -> Result<Option<Checksum>, Error> {
    let Some(UploadChecksum { algorithm, coverage }) = requested else { return Ok(None) };
    let digests = parts.iter().map(|part| digest_of(part, algorithm)).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(match coverage {
        Coverage::Composite => composite(algorithm, &digests),
        Coverage::FullObject => combined(algorithm, parts, &digests)?,
    }))
}

/// The checksum of an object whose upload was created without one, if all parts have a checksum of the same algorithm:
/// clients may send checksums of parts without having named an algorithm. CRCs cover the full object unless the client
/// declares otherwise, SHAs the digests of the parts.
pub(super) fn implied(parts: &[&Part], declared: Option<Coverage>) -> Option<UploadChecksum> {
    let algorithm_of = |part: &&Part| part.checksum.as_ref().map(|checksum| checksum.algorithm);
    let algorithm = parts.first().and_then(algorithm_of)?;
    let coverage = match algorithm {
        Algorithm::Crc32 | Algorithm::Crc32c => declared.unwrap_or(Coverage::FullObject),
        Algorithm::Crc64nvme => Coverage::FullObject,
        Algorithm::Sha1 | Algorithm::Sha256 => Coverage::Composite,
    };
    let same = parts.iter().all(|part| algorithm_of(part) == Some(algorithm));
    same.then_some(UploadChecksum { algorithm, coverage })
}

fn digest_of(part: &Part, algorithm: Algorithm) -> Result<Vec<u8>, Error> {
    let known = part.checksum.as_ref().filter(|checksum| checksum.algorithm == algorithm);
    let digest = known.and_then(|checksum| BASE64.decode_to_vec(&checksum.value).ok());
    digest.ok_or_else(|| Error::Internal(format!("part {} has no {} checksum", part.number, algorithm.name())))
}

fn composite(algorithm: Algorithm, digests: &[Vec<u8>]) -> Checksum {
    let mut hasher = Hasher::new(Some(algorithm));
    for digest in digests {
        hasher.update(digest);
    }
    let over_digests = hasher.finish().checksum.expect("a checksum was requested");
    let value = format!("{}-{}", over_digests.value, digests.len());
    Checksum { algorithm, value, coverage: Coverage::Composite }
}

/// Combines the CRCs of the parts into the CRC of the object, without reading its bytes.
fn combined(algorithm: Algorithm, parts: &[&Part], digests: &[Vec<u8>]) -> Result<Checksum, Error> {
    let crc = crc_of(algorithm).ok_or(Error::Invalid("only CRCs can cover the full object of an upload"))?;
    let as_number = |digest: &Vec<u8>| digest.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let numbers = digests.iter().map(as_number).zip(parts);
    let total = numbers
        .map(|(number, part)| (number, part.length))
        .reduce(|(left, _), (right, length)| (crc_fast::checksum_combine(crc, left, right, length), length))
        .map_or(0, |(number, _)| number);
    Ok(full_object(algorithm, &crc_bytes(algorithm, total)))
}

#[cfg(test)]
mod tests {
    use super::{checksum, etag, implied};
    use crate::digest::Hasher;
    use s3o_model::checksum::{Algorithm, Coverage};
    use s3o_model::clock::Timestamp;
    use s3o_model::ids::ContentId;
    use s3o_model::multipart::{Part, UploadChecksum};

    fn part(number: u32, bytes: &[u8], algorithm: Algorithm) -> Part {
        let mut hasher = Hasher::new(Some(algorithm));
        hasher.update(bytes);
        let digests = hasher.finish();
        Part {
            number,
            content: ContentId::new(uuid::Uuid::nil()),
            length: bytes.len() as u64,
            md5: digests.md5,
            checksum: digests.checksum,
            last_modified: Timestamp::from_millis(0),
        }
    }

    #[test]
    fn full_object_checksum_equals_that_of_the_bytes() {
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64nvme] {
            let parts = [part(1, b"12", algorithm), part(2, b"3456", algorithm), part(3, b"789", algorithm)];
            let parts: Vec<&Part> = parts.iter().collect();
            let wanted = UploadChecksum { algorithm, coverage: Coverage::FullObject };
            let whole = part(1, b"123456789", algorithm);
            assert_eq!(checksum(Some(wanted), &parts).expect("combines"), whole.checksum);
        }
    }

    #[test]
    fn parts_of_one_algorithm_imply_the_checksum_of_the_object() {
        let (crc, other) = (part(1, b"abc", Algorithm::Crc32), part(2, b"def", Algorithm::Crc32c));
        let full = UploadChecksum { algorithm: Algorithm::Crc32, coverage: Coverage::FullObject };
        assert_eq!(implied(&[&crc, &crc], None), Some(full));
        let composite = UploadChecksum { coverage: Coverage::Composite, ..full };
        assert_eq!(implied(&[&crc], Some(Coverage::Composite)), Some(composite));
        let sha = part(1, b"abc", Algorithm::Sha256);
        assert_eq!(implied(&[&sha], Some(Coverage::FullObject)).map(|c| c.coverage), Some(Coverage::Composite));
        assert_eq!(implied(&[&crc, &other], None), None);
        assert_eq!(implied(&[&crc, &Part { checksum: None, ..crc.clone() }], None), None);
    }

    #[test]
    fn composite_checksum_ends_with_its_number_of_parts() {
        let one = part(1, b"abc", Algorithm::Sha256);
        let wanted = UploadChecksum { algorithm: Algorithm::Sha256, coverage: Coverage::Composite };
        let value = checksum(Some(wanted), &[&one, &one]).expect("hashes").expect("requested").value;
        assert!(value.ends_with("-2"), "{value}");
        assert!(etag(&[&one, &one]).as_str().ends_with("-2"));
    }
}
