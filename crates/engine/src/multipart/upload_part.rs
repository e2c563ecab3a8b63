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
use crate::write::{WriteTarget, WrittenBytes};
use crate::{Declared, Engine, Error};

/// A request to store a part.
pub struct UploadPart {
    /// Bucket, key and ID of an open upload.
    pub target: UploadRef,
    /// Part number, 1 to 10000.
    pub number: u32,
    /// Exact length of the body; any other length is an error.
    pub size_bytes: u64,
    /// Bytes of the part.
    pub body: ByteStream,
    /// Digests to verify.
    pub declared: Declared,
}

/// Result of storing a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPart {
    /// MD5 of the part.
    pub etag: ETag,
    /// Checksum, if the upload has one.
    pub checksum: Option<Checksum>,
}

impl Engine {
    /// Stores a part; it replaces a part with the same number.
    pub async fn upload_part(&self, part: UploadPart) -> Result<StoredPart, Error> {
        let engine = self.clone();
        self.tasks.run(async move { engine.put_part(part).await }).await
    }

    async fn put_part(&self, mut part: UploadPart) -> Result<StoredPart, Error> {
        check_part(part.number, part.size_bytes)?;
        let upload = self.open_upload(&part.target).await?;
        let requested = upload.checksum.map(|checksum| checksum.algorithm);
        match (requested, part.declared.algorithm()) {
            (Some(requested), Some(declared)) if requested != declared => {
                return Err(Error::Invalid("the checksum algorithm of the part is not that of the upload"));
            }
            (requested, _) => part.declared.compute = requested,
        }
        let target = self.part_target(&upload, &part.target, part.number, part.size_bytes);
        let written = self.write_bytes(target, part.body, part.declared).await?;
        self.commit_part(&upload, part.number, part.size_bytes, written).await.map(|(stored, _)| stored)
    }

    pub(super) fn part_target<'a>(
        &self,
        upload: &Upload,
        named: &'a UploadRef,
        number: u32,
        size_bytes: u64,
    ) -> WriteTarget<'a> {
        WriteTarget {
            kind: IntentKind::Part { upload: upload.id, number },
            bucket: upload.bucket,
            bucket_name: &named.bucket,
            key: &named.key,
            size_bytes,
            draft: None,
            settings: self.bucket_settings(&named.bucket),
        }
    }

    pub(super) async fn commit_part(
        &self,
        upload: &Upload,
        number: u32,
        length: u64,
        written: WrittenBytes,
    ) -> Result<(StoredPart, Timestamp), Error> {
        let checksum = written.digests.checksum.clone();
        let stored = StoredPart { etag: ETag::of_whole(written.digests.md5), checksum: checksum.clone() };
        let commit = CommitPart {
            upload: upload.id,
            bucket: upload.bucket,
            factor: written.settings.factor,
            number,
            content: ContentId::new(self.ids.fresh()),
            length,
            md5: written.digests.md5,
            checksum,
            source: PartSource::Written {
                stored: written.stored(),
                sha256: Some(written.digests.sha256),
                plan: written.plan,
            },
        };
        match self.sharing.commit_part(commit, self.write_copies(&written.settings).min).await {
            Ok(last_modified) => {
                self.count_committed(&written);
                self.wake_cleanup();
                Ok((stored, last_modified))
            }
            // The answer with the commit time was lost; the current time is close to it.
            Err(error) => self.end_uncommitted(&written, (stored, self.now()), error).await,
        }
    }
}

/// Enforces the limits of S3.
pub(super) fn check_part(number: u32, size_bytes: u64) -> Result<(), Error> {
    if !(1..=PART_NUMBER_MAX).contains(&number) {
        return Err(Error::Invalid("part numbers must be from 1 to 10000"));
    }
    if size_bytes > PART_BYTES_MAX {
        return Err(Error::TooLarge { max_bytes: PART_BYTES_MAX });
    }
    Ok(())
}
