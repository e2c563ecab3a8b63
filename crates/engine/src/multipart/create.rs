//! Opens a multipart upload.

use s3o_model::ids::UploadId;
use s3o_model::multipart::{Upload, UploadChecksum, UploadState};
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::Attributes;

use crate::{Engine, Error};

/// A request to open an upload.
#[derive(Debug, Clone)]
pub struct CreateUpload {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// What the object will carry.
    pub attributes: Attributes,
    /// Which checksum the client wants.
    pub checksum: Option<UploadChecksum>,
}

impl Engine {
    /// Opens an upload.
    pub async fn create_upload(&self, create: CreateUpload) -> Result<Upload, Error> {
        let bucket = self.find_bucket(&create.bucket).await?;
        let mut upload = Upload {
            id: UploadId::new(self.ids.fresh()),
            bucket: bucket.id,
            key: create.key,
            attributes: create.attributes,
            checksum: create.checksum,
            created_at: bucket.created_at,
            state: UploadState::Open,
        };
        upload.created_at = self.uploads.create_upload(&upload).await?;
        Ok(upload)
    }
}
