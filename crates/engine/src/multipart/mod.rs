//! Multipart uploads, one file per operation.

mod abort;
mod complete;
mod create;
mod joined;
mod list;
mod upload_part;
mod upload_part_copy;

pub use complete::{CompleteUpload, Completed};
pub use create::{CreateUpload, Created};
pub use list::{ListedUpload, ObjectPart, PartsPage, UploadsPage, UploadsQuery};
pub use upload_part::{PartStored, UploadPart};
pub use upload_part_copy::{PartCopied, UploadPartCopy};

use s3o_model::ids::{BucketId, UploadId};
use s3o_model::multipart::{Upload, UploadState};
use s3o_model::names::{BucketName, ObjectKey};

use crate::{Engine, Error};

/// An upload as a client names it: by all three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRef {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// The upload's identifier.
    pub upload: UploadId,
}

impl Engine {
    /// An upload, if all three names lead to it.
    async fn named_upload(&self, target: &UploadRef) -> Result<Upload, Error> {
        let bucket = self.find_bucket(&target.bucket).await?;
        self.upload_in(bucket.id, target).await
    }

    async fn upload_in(&self, bucket: BucketId, target: &UploadRef) -> Result<Upload, Error> {
        let upload = self.uploads.upload(target.upload).await?;
        upload.filter(|upload| upload.bucket == bucket && upload.key == target.key).ok_or(Error::NoSuchUpload)
    }

    async fn open_upload(&self, target: &UploadRef) -> Result<Upload, Error> {
        open(self.named_upload(target).await?)
    }
}

/// An upload, if parts may still come.
fn open(upload: Upload) -> Result<Upload, Error> {
    match upload.state {
        UploadState::Open => Ok(upload),
        UploadState::Completed(_) | UploadState::Aborted => Err(Error::NoSuchUpload),
    }
}
