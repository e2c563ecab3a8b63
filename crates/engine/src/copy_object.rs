//! Copies an object: the new row refers to the same content, and no bytes are copied.

use s3o_catalog::{PutRow, Resolved};
use s3o_model::checksum::{Algorithm, Checksum};
use s3o_model::clock::Timestamp;
use s3o_model::conditions::{ReadConditions, ReadVerdict, WriteCondition};
use s3o_model::etag::ETag;
use s3o_model::expiry::Expiry;
use s3o_model::ids::VersionId;
use s3o_model::lifecycle::ScheduledDeletion;
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::{Attributes, Headers, Object, Tags, UserMetadata};
use s3o_model::range::ByteRange;

use crate::body::digest_of;
use crate::expiration::NewObject;
use crate::get_object::source_of;
use crate::put_object::may_write;
use crate::{Engine, Error};

/// The object that a copy reads, with its conditions.
#[derive(Debug, Clone)]
pub struct CopySource {
    /// Bucket of the source object.
    pub bucket: BucketName,
    /// Key of the source object.
    pub key: ObjectKey,
    /// `x-amz-copy-source-if-*` headers; each one that fails is `PreconditionFailed`.
    pub conditions: ReadConditions,
}

/// A request to copy an object.
#[derive(Debug, Clone)]
pub struct CopyObject {
    /// The object to read.
    pub source: CopySource,
    /// Bucket of the destination.
    pub bucket: BucketName,
    /// Key of the destination; an existing object is replaced.
    pub key: ObjectKey,
    /// Headers and metadata that replace those of the source (`x-amz-metadata-directive: REPLACE`).
    pub replace_metadata: Option<(Headers, UserMetadata)>,
    /// Storage class of the destination; it is never copied.
    pub storage_class: Option<String>,
    /// Tags that replace those of the source (`x-amz-tagging-directive: REPLACE`).
    pub replace_tags: Option<Tags>,
    /// Condition on the object at the destination.
    pub condition: WriteCondition,
    /// Checksum that the copy must have; the bytes are read if the source has another one.
    pub checksum: Option<Algorithm>,
    /// Expiration; `None` means the bucket's default. The expiration of the source does not apply.
    pub expiry: Option<Expiry>,
}

/// A finished copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Same as that of the source.
    pub etag: ETag,
    /// Time of the copy.
    pub last_modified: Timestamp,
    /// Requested checksum, or that of the source.
    pub checksum: Option<Checksum>,
    /// When the copy expires or a lifecycle rule deletes it.
    pub expiration: Option<ScheduledDeletion>,
}

/// Maximum number of attempts; an attempt fails if the source is replaced during it.
const ATTEMPTS_MAX: usize = 5;

impl Engine {
    /// Copies an object within one transaction of the catalog.
    pub async fn copy_object(&self, copy: CopyObject) -> Result<Copied, Error> {
        let engine = self.clone();
        self.tasks.run(async move { engine.copy(copy).await }).await
    }

    async fn copy(&self, copy: CopyObject) -> Result<Copied, Error> {
        for _ in 0..ATTEMPTS_MAX {
            match self.copy_once(&copy).await {
                // The content of the source was condemned after its row was read.
                Err(Error::Conflict) => {}
                outcome => return outcome,
            }
        }
        Err(Error::Conflict)
    }

    async fn copy_once(&self, copy: &CopyObject) -> Result<Copied, Error> {
        let current = self.find(&copy.bucket, &copy.key).await?;
        may_write(&copy.condition, current.object.as_ref())?;
        let expiry = self.expiry(&copy.bucket, copy.expiry, current.now)?;
        let resolved = self.copy_source(&copy.source).await?;
        let source = resolved.object.clone().ok_or(Error::NoSuchKey)?;
        let checksum = self.copy_checksum(copy.checksum, &source, resolved).await?;
        let row = PutRow {
            bucket: current.bucket,
            key: copy.key.clone(),
            version: VersionId::new(self.ids.fresh()),
            size_bytes: source.size_bytes,
            etag: source.etag.clone(),
            checksum: checksum.clone(),
            attributes: attributes_of(copy, &source),
            expiry,
        };
        let new = NewObject::of(&row);
        let committed = self.catalog.commit_copy(row, source.content, copy.condition.clone()).await?;
        self.after_commit(committed);
        let expiration = self.expiration_of_new(&copy.bucket, &new, committed).await;
        Ok(Copied { etag: source.etag, last_modified: committed.last_modified, checksum, expiration })
    }

    /// The source of a copy, if its conditions hold.
    pub(crate) async fn copy_source(&self, source: &CopySource) -> Result<Resolved, Error> {
        let resolved = self.find(&source.bucket, &source.key).await?;
        let object = resolved.object.as_ref().ok_or(Error::NoSuchKey)?;
        match source.conditions.judge(&object.etag, object.last_modified) {
            ReadVerdict::Proceed => Ok(resolved),
            ReadVerdict::Failed | ReadVerdict::NotModified => Err(Error::PreconditionFailed("x-amz-copy-source-if-*")),
        }
    }

    /// The checksum of the source, or the requested one, for which the bytes are read.
    async fn copy_checksum(
        &self,
        requested: Option<Algorithm>,
        source: &Object,
        resolved: Resolved,
    ) -> Result<Option<Checksum>, Error> {
        let known = source.checksum.clone();
        match requested {
            Some(algorithm) if known.as_ref().is_none_or(|known| known.algorithm != algorithm) => {
                let body = self.read(source_of(resolved)?, ByteRange::whole(source.size_bytes)).await?;
                Ok(digest_of(body, source.size_bytes, requested).await?.checksum)
            }
            Some(_) | None => Ok(known),
        }
    }
}

fn attributes_of(copy: &CopyObject, source: &Object) -> Attributes {
    let mut attributes = source.attributes.clone();
    if let Some((headers, metadata)) = &copy.replace_metadata {
        (attributes.headers, attributes.metadata) = (headers.clone(), metadata.clone());
    }
    if let Some(tags) = &copy.replace_tags {
        attributes.tags.clone_from(tags);
    }
    // `x-amz-metadata-directive` does not apply to the storage class.
    attributes.headers.storage_class.clone_from(&copy.storage_class);
    attributes
}
