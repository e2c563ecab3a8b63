//! Multipart uploads: parts, and the rules of S3 for completing them.

use serde::{Deserialize, Serialize};

use crate::checksum::{Algorithm, Checksum, Coverage};
use crate::clock::Timestamp;
use crate::etag::{ETag, Md5};
use crate::expiry::Expiry;
use crate::ids::{BucketId, ContentId, UploadId, VersionId};
use crate::names::ObjectKey;
use crate::object::Attributes;

/// The highest part number.
pub const PART_NUMBER_MAX: u32 = 10_000;
/// Every part but the last has at least this many bytes.
pub const PART_BYTES_MIN: u64 = 5 * 1024 * 1024;
/// No part has more than this many bytes.
pub const PART_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// Open uploads can become completed or aborted; these states are final.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadState {
    /// The upload accepts parts.
    Open,
    /// The upload became an object; its answer is stored for a client that repeats the request.
    Completed(CompletedAnswer),
    /// A client, a lifecycle rule or `stale_multipart` closed the upload; its parts are deleted.
    Aborted,
}

/// The stored answer of a successful Complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletedAnswer {
    /// The object's `ETag`.
    pub etag: ETag,
    /// The object's version.
    pub version: VersionId,
    /// The object's length.
    pub size_bytes: u64,
    /// The object's checksum.
    pub checksum: Option<Checksum>,
    /// Digest of the request: a repeated request must be the same.
    pub request: String,
}

/// An upload in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Identifier of the upload.
    pub id: UploadId,
    /// Bucket of the object.
    pub bucket: BucketId,
    /// Key of the object.
    pub key: ObjectKey,
    /// Headers, metadata and tags of the object.
    pub attributes: Attributes,
    /// Checksum that the client requested.
    pub checksum: Option<UploadChecksum>,
    /// Expiration of the object.
    pub expiry: Option<Expiry>,
    /// Creation time.
    pub created_at: Timestamp,
    /// Closed uploads stay in the catalog for a while, to answer repeated requests.
    pub state: UploadState,
}

/// Checksum requested when the upload was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadChecksum {
    /// Every part has a checksum of this algorithm.
    pub algorithm: Algorithm,
    /// What the object's checksum covers.
    pub coverage: Coverage,
}

/// A part in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// 1 to [`PART_NUMBER_MAX`].
    pub number: u32,
    /// The content that the part refers to.
    pub content: ContentId,
    /// Size in bytes.
    pub length: u64,
    /// Digest of the part's bytes.
    pub md5: Md5,
    /// Checksum, if the upload has one.
    pub checksum: Option<Checksum>,
    /// Time of the write.
    pub last_modified: Timestamp,
}

impl Part {
    /// The MD5 in hexadecimal, as `UploadPart` returned it.
    #[must_use]
    pub fn etag(&self) -> ETag {
        ETag::of_whole(self.md5)
    }
}

/// A part in the request of Complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPart {
    /// Must ascend within the request.
    pub number: u32,
    /// ETag that the client sent.
    pub etag: ETag,
    /// Checksum that the client sent.
    pub checksum: Option<Checksum>,
}

/// Why Complete refuses a list of parts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartsRefused {
    /// The list is empty or has too many parts.
    #[error("the list of parts must have 1 to 10000 entries")]
    Count,
    /// Part numbers do not ascend.
    #[error("the list of parts is not in ascending order")]
    Order,
    /// A part was not uploaded, or its `ETag` or checksum differs.
    #[error("part {0} was not uploaded, or its ETag or checksum does not match")]
    Unknown(u32),
    /// A part other than the last is too small.
    #[error("part {0} is smaller than 5 MiB, the minimum for every part but the last")]
    TooSmall(u32),
}

/// Selects the stored parts that the client listed, in order, or refuses the list by the rules of S3.
pub fn select_parts<'a>(stored: &'a [Part], listed: &[ListedPart]) -> Result<Vec<&'a Part>, PartsRefused> {
    if listed.is_empty() || listed.len() > PART_NUMBER_MAX as usize {
        return Err(PartsRefused::Count);
    }
    if !listed.is_sorted_by(|a, b| a.number < b.number) {
        return Err(PartsRefused::Order);
    }
    let selected = listed.iter().map(|part| find_part(stored, part)).collect::<Result<Vec<_>, _>>()?;
    let all_but_last = &selected[..selected.len() - 1];
    match all_but_last.iter().find(|part| part.length < PART_BYTES_MIN) {
        Some(small) => Err(PartsRefused::TooSmall(small.number)),
        None => Ok(selected),
    }
}

fn find_part<'a>(stored: &'a [Part], listed: &ListedPart) -> Result<&'a Part, PartsRefused> {
    let refused = PartsRefused::Unknown(listed.number);
    let position = stored.binary_search_by_key(&listed.number, |part| part.number).map_err(|_| refused.clone())?;
    let part = &stored[position];
    let checksum_fits = match (&listed.checksum, &part.checksum) {
        (Some(sent), Some(stored)) if sent.algorithm == stored.algorithm => sent.value == stored.value,
        (Some(_) | None, Some(_) | None) => true,
    };
    if part.etag() == listed.etag && checksum_fits { Ok(part) } else { Err(refused) }
}

#[cfg(test)]
mod tests {
    use super::{ListedPart, PART_BYTES_MIN, Part, PartsRefused, select_parts};
    use crate::clock::Timestamp;
    use crate::etag::Md5;
    use crate::ids::ContentId;

    fn part(number: u32, length: u64) -> Part {
        let byte = u8::try_from(number).expect("small");
        Part {
            number,
            content: ContentId::new(uuid::Uuid::nil()),
            length,
            md5: Md5([byte; 16]),
            checksum: None,
            last_modified: Timestamp::from_millis(0),
        }
    }

    fn listed(part: &Part) -> ListedPart {
        ListedPart { number: part.number, etag: part.etag(), checksum: None }
    }

    #[test]
    fn listed_parts_are_selected_in_order() {
        let stored = [part(1, PART_BYTES_MIN), part(2, PART_BYTES_MIN), part(9, 1)];
        let chosen = select_parts(&stored, &[listed(&stored[0]), listed(&stored[2])]).expect("allowed");
        assert_eq!(chosen.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 9]);
    }

    #[test]
    fn invalid_part_lists_are_refused() {
        let stored = [part(1, 5), part(2, PART_BYTES_MIN)];
        let (one, two) = (listed(&stored[0]), listed(&stored[1]));
        let wrong_etag = ListedPart { etag: two.etag.clone(), ..one.clone() };
        assert_eq!(select_parts(&stored, &[]), Err(PartsRefused::Count));
        assert_eq!(select_parts(&stored, &[two.clone(), one.clone()]), Err(PartsRefused::Order));
        assert_eq!(select_parts(&stored, &[one.clone(), one.clone()]), Err(PartsRefused::Order));
        assert_eq!(select_parts(&stored, &[wrong_etag]), Err(PartsRefused::Unknown(1)));
        assert_eq!(select_parts(&stored, &[ListedPart { number: 3, ..one.clone() }]), Err(PartsRefused::Unknown(3)));
        assert_eq!(select_parts(&stored, &[one.clone(), two]), Err(PartsRefused::TooSmall(1)));
        assert!(select_parts(&stored, &[one]).is_ok());
    }
}
