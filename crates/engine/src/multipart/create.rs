//! Opens a multipart upload.

use s3o_model::expiry::Expiry;
use s3o_model::ids::UploadId;
use s3o_model::lifecycle::Departure;
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
    /// When the object will cease to exist; `None`: when its bucket says. A time to live counts from Complete.
    pub expiry: Option<Expiry>,
}

/// An upload that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The upload.
    pub upload: Upload,
    /// When it is aborted if nobody completes it.
    pub departure: Option<Departure>,
}

impl Engine {
    /// Opens an upload.
    pub async fn create_upload(&self, create: CreateUpload) -> Result<Created, Error> {
        let there = self.find(&create.bucket, &create.key).await?;
        let expiry = self.expiry(&create.bucket, create.expiry, there.now)?;
        let mut upload = Upload {
            id: UploadId::new(self.ids.fresh()),
            bucket: there.bucket,
            key: create.key,
            attributes: create.attributes,
            checksum: create.checksum,
            expiry,
            created_at: there.now,
            state: UploadState::Open,
        };
        upload.created_at = self.uploads.create_upload(&upload).await?;
        let departure = self.departure_of_upload(&create.bucket, &upload, there.rules).await;
        Ok(Created { upload, departure })
    }
}
