//! Multipart uploads, one file per operation.

mod abort;
mod complete;
mod create;
mod joined;
mod list;
mod upload_part;
mod upload_part_copy;

pub use complete::{CompleteUpload, Completed};
pub use create::{CreateUpload, CreatedUpload};
pub use list::{ListedUpload, ObjectPart, OpenUploadsPage, PartsPage, UploadsQuery};
pub use upload_part::{StoredPart, UploadPart};
pub use upload_part_copy::{CopiedPart, UploadPartCopy};

use s3o_model::ids::{BucketId, UploadId};
use s3o_model::multipart::{Upload, UploadState};
use s3o_model::names::{BucketName, ObjectKey};

use crate::{Engine, Error};

/// An upload as a request names it; all three values must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRef {
    /// Bucket of the object.
    pub bucket: BucketName,
    /// Key of the object.
    pub key: ObjectKey,
    /// `uploadId` of the request.
    pub upload: UploadId,
}

impl Engine {
    /// The upload in any state, if bucket, key and ID match.
    async fn named_upload(&self, target: &UploadRef) -> Result<Upload, Error> {
        let bucket = self.find_bucket(&target.bucket).await?;
        self.upload_in(bucket.id, target).await
    }

    async fn upload_in(&self, bucket: BucketId, target: &UploadRef) -> Result<Upload, Error> {
        let upload = self.catalog.upload(target.upload).await?;
        upload.filter(|upload| upload.bucket == bucket && upload.key == target.key).ok_or(Error::NoSuchUpload)
    }

    async fn open_upload(&self, target: &UploadRef) -> Result<Upload, Error> {
        open(self.named_upload(target).await?)
    }
}

/// Refuses an upload that accepts no more parts.
fn open(upload: Upload) -> Result<Upload, Error> {
    match upload.state {
        UploadState::Open => Ok(upload),
        UploadState::Completed(_) | UploadState::Aborted => Err(Error::NoSuchUpload),
    }
}
