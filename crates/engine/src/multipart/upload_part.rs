//! Stores one part.

use s3o_backend::ByteStream;
use s3o_catalog::{CommitPart, PartSource};
use s3o_model::checksum::Checksum;
use s3o_model::clock::Timestamp;
use s3o_model::etag::ETag;
use s3o_model::ids::ContentId;
use s3o_model::intent::IntentKind;
use s3o_model::multipart::{PART_BYTES_MAX, PART_NUMBER_MAX, Upload};

use super::UploadRef;
use crate::write::{Target, WrittenBytes};
use crate::{Declared, Engine, Error};

/// A request to store a part.
pub struct UploadPart {
    /// The upload.
    pub target: UploadRef,
    /// The part's number, 1 to 10000.
    pub number: u32,
    /// The exact length of the body.
    pub size_bytes: u64,
    /// The bytes.
    pub body: ByteStream,
    /// What the sender says of them.
    pub declared: Declared,
}

/// A stored part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartStored {
    /// Its `ETag`.
    pub etag: ETag,
    /// Its checksum, where the upload has one.
    pub checksum: Option<Checksum>,
}

impl Engine {
    /// Stores a part, in place of one that has the same number.
    pub async fn upload_part(&self, part: UploadPart) -> Result<PartStored, Error> {
        let engine = self.clone();
        self.tasks.run(async move { engine.put_part(part).await }).await
    }

    async fn put_part(&self, mut part: UploadPart) -> Result<PartStored, Error> {
        check_part(part.number, part.size_bytes)?;
        let upload = self.open_upload(&part.target).await?;
        let wanted = upload.checksum.map(|checksum| checksum.algorithm);
        match (wanted, part.declared.algorithm()) {
            (Some(wanted), Some(declared)) if wanted != declared => {
                return Err(Error::Invalid("the part's checksum algorithm is not the upload's"));
            }
            (wanted, _) => part.declared.compute = wanted,
        }
        let target = self.part_target(&upload, &part.target, part.number, part.size_bytes);
        let written = self.write_bytes(target, part.body, part.declared).await?;
        self.commit_part(&upload, part.number, part.size_bytes, written).await.map(|(stored, _)| stored)
    }

    /// What a part's bytes are written for.
    pub(super) fn part_target<'a>(
        &self,
        upload: &Upload,
        named: &'a UploadRef,
        number: u32,
        size_bytes: u64,
    ) -> Target<'a> {
        Target {
            kind: IntentKind::Part { upload: upload.id, number },
            bucket: upload.bucket,
            bucket_name: &named.bucket,
            key: &named.key,
            size_bytes,
            draft: None,
            dedup: self.bucket_settings(&named.bucket).dedup,
        }
    }

    pub(super) async fn commit_part(
        &self,
        upload: &Upload,
        number: u32,
        length: u64,
        written: WrittenBytes,
    ) -> Result<(PartStored, Timestamp), Error> {
        let checksum = written.digests.checksum.clone();
        let stored = PartStored { etag: ETag::of_whole(written.digests.md5), checksum: checksum.clone() };
        let commit = CommitPart {
            upload: upload.id,
            number,
            content: ContentId::new(self.ids.fresh()),
            length,
            md5: written.digests.md5,
            checksum,
            source: PartSource::Written {
                landed: written.landed(),
                sha256: Some(written.digests.sha256),
                dedup: written.dedup,
            },
        };
        match self.uploads.commit_part(commit).await {
            Ok(last_modified) => {
                self.settled(&written);
                self.ring_for_cleanup();
                Ok((stored, last_modified))
            }
            // The moment of a write that was committed all the same went with the answer; it is now, nearly.
            Err(error) => self.not_committed(&written, &error).await.of((stored, self.now()), error),
        }
    }
}

/// S3's bounds for a part.
pub(super) fn check_part(number: u32, size_bytes: u64) -> Result<(), Error> {
    if !(1..=PART_NUMBER_MAX).contains(&number) {
        return Err(Error::Invalid("part numbers go from 1 to 10000"));
    }
    if size_bytes > PART_BYTES_MAX {
        return Err(Error::TooLarge { max_bytes: PART_BYTES_MAX });
    }
    Ok(())
}
