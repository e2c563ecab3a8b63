//! Multipart uploads: the parts, and what S3 demands before they become one object.

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

/// Where an upload stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UploadState {
    /// It takes parts.
    Open,
    /// It became an object; the answer is kept for a client that asks again.
    Completed(CompletedAnswer),
    /// It was given up.
    Aborted,
}

/// What a finished Complete answered.
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
    /// What the client sent, digested: a replay must say the same.
    pub request: String,
}

/// An upload as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Its identifier.
    pub id: UploadId,
    /// The bucket it is bound to.
    pub bucket: BucketId,
    /// The key it is bound to.
    pub key: ObjectKey,
    /// What the object will carry.
    pub attributes: Attributes,
    /// Which checksum the client wants.
    pub checksum: Option<UploadChecksum>,
    /// When the object will cease to exist.
    pub expiry: Option<Expiry>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Where it stands.
    pub state: UploadState,
}

/// The checksum that an upload was created with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadChecksum {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// What the object's checksum covers.
    pub coverage: Coverage,
}

/// A part as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its number.
    pub number: u32,
    /// The content it refers to.
    pub content: ContentId,
    /// Its length.
    pub length: u64,
    /// Its digest.
    pub md5: Md5,
    /// Its checksum, where the upload has one.
    pub checksum: Option<Checksum>,
    /// When it was written.
    pub last_modified: Timestamp,
}

impl Part {
    /// Its `ETag`.
    #[must_use]
    pub fn etag(&self) -> ETag {
        ETag::of_whole(self.md5)
    }
}

/// A part as the client lists it in Complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedPart {
    /// Its number.
    pub number: u32,
    /// The `ETag` the client got for it.
    pub etag: ETag,
    /// The checksum the client has for it.
    pub checksum: Option<Checksum>,
}

/// Why a list of parts cannot become an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartsRefused {
    /// The list is empty or has too many parts.
    #[error("the list of parts must have 1 to 10000 entries")]
    Count,
    /// Part numbers do not ascend.
    #[error("the list of parts was not in ascending order")]
    Order,
    /// A part was not uploaded, or its `ETag` or checksum differs.
    #[error("part {0} was not uploaded, or its ETag or checksum does not match")]
    Unknown(u32),
    /// A part other than the last is too small.
    #[error("part {0} is smaller than the minimum size")]
    TooSmall(u32),
}

/// Picks the stored parts that the client listed, in order, if S3's rules allow them.
pub fn select_parts<'a>(stored: &'a [Part], listed: &[ListedPart]) -> Result<Vec<&'a Part>, PartsRefused> {
    if listed.is_empty() || listed.len() > PART_NUMBER_MAX as usize {
        return Err(PartsRefused::Count);
    }
    if !listed.is_sorted_by(|a, b| a.number < b.number) {
        return Err(PartsRefused::Order);
    }
    let chosen = listed.iter().map(|wanted| find_part(stored, wanted)).collect::<Result<Vec<_>, _>>()?;
    let all_but_last = &chosen[..chosen.len() - 1];
    match all_but_last.iter().find(|part| part.length < PART_BYTES_MIN) {
        Some(small) => Err(PartsRefused::TooSmall(small.number)),
        None => Ok(chosen),
    }
}

fn find_part<'a>(stored: &'a [Part], wanted: &ListedPart) -> Result<&'a Part, PartsRefused> {
    let refused = PartsRefused::Unknown(wanted.number);
    let position = stored.binary_search_by_key(&wanted.number, |part| part.number).map_err(|_| refused.clone())?;
    let part = &stored[position];
    let checksum_fits = match (&wanted.checksum, &part.checksum) {
        (Some(theirs), Some(ours)) if theirs.algorithm == ours.algorithm => theirs.value == ours.value,
        (Some(_) | None, Some(_) | None) => true,
    };
    if part.etag() == wanted.etag && checksum_fits { Ok(part) } else { Err(refused) }
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
    fn listed_parts_are_picked_in_order() {
        let stored = [part(1, PART_BYTES_MIN), part(2, PART_BYTES_MIN), part(9, 1)];
        let chosen = select_parts(&stored, &[listed(&stored[0]), listed(&stored[2])]).expect("allowed");
        assert_eq!(chosen.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 9]);
    }

    #[test]
    fn what_s3_refuses_is_refused() {
        let stored = [part(1, 5), part(2, PART_BYTES_MIN)];
        let (one, two) = (listed(&stored[0]), listed(&stored[1]));
        let stranger = ListedPart { etag: two.etag.clone(), ..one.clone() };
        assert_eq!(select_parts(&stored, &[]), Err(PartsRefused::Count));
        assert_eq!(select_parts(&stored, &[two.clone(), one.clone()]), Err(PartsRefused::Order));
        assert_eq!(select_parts(&stored, &[one.clone(), one.clone()]), Err(PartsRefused::Order));
        assert_eq!(select_parts(&stored, &[stranger]), Err(PartsRefused::Unknown(1)));
        assert_eq!(select_parts(&stored, &[ListedPart { number: 3, ..one.clone() }]), Err(PartsRefused::Unknown(3)));
        assert_eq!(select_parts(&stored, &[one.clone(), two]), Err(PartsRefused::TooSmall(1)));
        assert!(select_parts(&stored, &[one]).is_ok());
    }
}
