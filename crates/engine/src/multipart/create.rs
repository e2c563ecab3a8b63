//! Creates a multipart upload.

use s3o_model::expiry::Expiry;
use s3o_model::ids::UploadId;
use s3o_model::lifecycle::ScheduledDeletion;
use s3o_model::multipart::{Upload, UploadChecksum, UploadState};
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::Attributes;

use crate::{Engine, Error};

/// A request to create an upload.
#[derive(Debug, Clone)]
pub struct CreateUpload {
    /// Must exist, or the request fails with `NoSuchBucket`.
    pub bucket: BucketName,
    /// Key of the object.
    pub key: ObjectKey,
    /// Headers, metadata and tags of the object.
    pub attributes: Attributes,
    /// Checksum of the object and its parts.
    pub checksum: Option<UploadChecksum>,
    /// Expiration of the object; `None` means the bucket's default. A time to live starts at Complete.
    pub expiry: Option<Expiry>,
}

/// A new upload, and when a lifecycle rule aborts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedUpload {
    /// The row in the catalog.
    pub upload: Upload,
    /// When a lifecycle rule aborts the upload if it is incomplete.
    pub expiration: Option<ScheduledDeletion>,
}

impl Engine {
    /// Creates an upload that accepts parts.
    pub async fn create_upload(&self, create: CreateUpload) -> Result<CreatedUpload, Error> {
        let resolved = self.find(&create.bucket, &create.key).await?;
        let expiry = self.expiry(&create.bucket, create.expiry, resolved.now)?;
        let mut upload = Upload {
            id: UploadId::new(self.ids.fresh()),
            bucket: resolved.bucket,
            key: create.key,
            attributes: create.attributes,
            checksum: create.checksum,
            expiry,
            created_at: resolved.now,
            state: UploadState::Open,
        };
        upload.created_at = self.catalog.create_upload(&upload).await?;
        let expiration = self.expiration_of_upload(&create.bucket, &upload, resolved.rules).await;
        Ok(CreatedUpload { upload, expiration })
    }
}
