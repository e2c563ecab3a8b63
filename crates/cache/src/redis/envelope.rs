//! Header of a body in Redis, so that no other value is ever used as that body: a magic number with the
//! version of the format, the content ID, the length, and a checksum over all of it.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use s3o_model::ids::ContentId;

/// Magic number; its last byte is the version of the format.
const MAGIC: [u8; 4] = *b"s3o\x01";
const CONTENT_AT: usize = MAGIC.len();
const LENGTH_AT: usize = CONTENT_AT + 16;
const CHECKSUM_AT: usize = LENGTH_AT + 8;
const BODY_AT: usize = CHECKSUM_AT + 8;

/// Length of a body of this size with its header.
pub(super) fn length(size_bytes: u64) -> u64 {
    size_bytes.saturating_add(BODY_AT as u64)
}

/// Adds the header to a body.
pub(super) fn seal(content: ContentId, body: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(BODY_AT + body.len());
    value.extend_from_slice(&MAGIC);
    value.extend_from_slice(content.uuid().as_bytes());
    value.extend_from_slice(&(body.len() as u64).to_be_bytes());
    let checksum = checksum(&value, body);
    value.extend_from_slice(&checksum);
    value.extend_from_slice(body);
    value
}

/// Checks the header and returns the body, or what is wrong.
pub(super) fn open(mut value: Vec<u8>, content: ContentId, size_bytes: u64) -> Result<Bytes, &'static str> {
    if value.len() < BODY_AT || value[..CONTENT_AT] != MAGIC {
        return Err("not an entry of this format");
    }
    if value[CONTENT_AT..LENGTH_AT] != *content.uuid().as_bytes() {
        return Err("wrong content ID");
    }
    let is_length = |length: u64| value[LENGTH_AT..CHECKSUM_AT] == length.to_be_bytes();
    if !is_length(size_bytes) || !is_length((value.len() - BODY_AT) as u64) {
        return Err("wrong length");
    }
    if value[CHECKSUM_AT..BODY_AT] != checksum(&value[..CHECKSUM_AT], &value[BODY_AT..]) {
        return Err("wrong checksum");
    }
    // The memory tier counts the length of a body, not its capacity.
    value.shrink_to_fit();
    Ok(Bytes::from(value).slice(BODY_AT..))
}

fn checksum(head: &[u8], body: &[u8]) -> [u8; 8] {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(head);
    digest.update(body);
    digest.finalize().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::{BODY_AT, CONTENT_AT, checksum, length, open, seal};
    use s3o_model::ids::ContentId;
    use uuid::Uuid;

    const CONTENT: ContentId = ContentId::new(Uuid::from_u128(7));

    #[test]
    fn sealed_body_opens() {
        for body in [vec![], b"a".to_vec(), vec![9; 70_000]] {
            let sealed = seal(CONTENT, &body);
            assert_eq!(sealed.len() as u64, length(body.len() as u64));
            assert_eq!(open(sealed, CONTENT, body.len() as u64).expect("opens"), body);
        }
    }

    #[test]
    fn every_changed_byte_is_detected() {
        let sealed = seal(CONTENT, b"abc");
        for position in 0..sealed.len() {
            let mut value = sealed.clone();
            value[position] ^= 1;
            assert!(open(value, CONTENT, 3).is_err(), "byte {position}");
        }
    }

    #[test]
    fn truncated_or_extended_value_does_not_open() {
        let sealed = seal(CONTENT, b"abc");
        for end in 0..sealed.len() {
            assert!(open(sealed[..end].to_vec(), CONTENT, 3).is_err(), "{end} bytes");
        }
        assert!(open([&sealed[..], b"d"].concat(), CONTENT, 3).is_err());
        assert!(open([&sealed[..], b"d"].concat(), CONTENT, 4).is_err());
    }

    #[test]
    fn body_of_another_content_does_not_open() {
        let other = ContentId::new(Uuid::from_u128(8));
        assert_eq!(open(seal(other, b"abc"), CONTENT, 3), Err("wrong content ID"));
        assert_eq!(open(seal(CONTENT, b"abc"), CONTENT, 4), Err("wrong length"));
    }

    #[test]
    fn later_format_does_not_open() {
        let mut value = seal(CONTENT, b"abc");
        value[CONTENT_AT - 1] = 2;
        let right = checksum(&value[..BODY_AT - 8], b"abc");
        value[BODY_AT - 8..BODY_AT].copy_from_slice(&right);
        assert_eq!(open(value, CONTENT, 3), Err("not an entry of this format"));
    }
}
