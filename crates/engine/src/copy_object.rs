//! Copies an object: a new row on the same content. No byte moves.

use s3o_catalog::{PutRow, Resolved};
use s3o_model::checksum::{Algorithm, Checksum};
use s3o_model::clock::Timestamp;
use s3o_model::conditions::{ReadConditions, ReadVerdict, WriteCondition};
use s3o_model::etag::ETag;
use s3o_model::expiry::Expiry;
use s3o_model::ids::VersionId;
use s3o_model::lifecycle::Departure;
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::{Attributes, Headers, Object, Tags, UserMetadata};
use s3o_model::range::ByteRange;

use crate::body::digest_of;
use crate::departure::Leaving;
use crate::get_object::source_of;
use crate::put_object::may_write;
use crate::{Engine, Error};

/// Where a copy comes from.
#[derive(Debug, Clone)]
pub struct CopySource {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// When it may be copied; each that fails is `PreconditionFailed`.
    pub conditions: ReadConditions,
}

/// A request to copy an object.
#[derive(Debug, Clone)]
pub struct CopyObject {
    /// Where from.
    pub source: CopySource,
    /// The bucket to copy to.
    pub bucket: BucketName,
    /// The key to copy to.
    pub key: ObjectKey,
    /// Headers and metadata in place of the source's (`x-amz-metadata-directive: REPLACE`).
    pub replace_metadata: Option<(Headers, UserMetadata)>,
    /// A storage class in place of the source's.
    pub storage_class: Option<String>,
    /// Tags in place of the source's (`x-amz-tagging-directive: REPLACE`).
    pub replace_tags: Option<Tags>,
    /// When it may be stored.
    pub condition: WriteCondition,
    /// A checksum that the copy must have.
    pub checksum: Option<Algorithm>,
    /// When the copy ceases to exist; `None`: when its bucket says. The source's expiry is the source's own.
    pub expiry: Option<Expiry>,
}

/// A finished copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Its `ETag`.
    pub etag: ETag,
    /// When it was written.
    pub last_modified: Timestamp,
    /// Its checksum.
    pub checksum: Option<Checksum>,
    /// When it goes by itself.
    pub departure: Option<Departure>,
}

/// How often a copy starts over because its source changed meanwhile.
const ATTEMPTS_MAX: usize = 5;

impl Engine {
    /// Copies an object.
    pub async fn copy_object(&self, copy: CopyObject) -> Result<Copied, Error> {
        let engine = self.clone();
        self.tasks.run(async move { engine.copy(copy).await }).await
    }

    async fn copy(&self, copy: CopyObject) -> Result<Copied, Error> {
        for _ in 0..ATTEMPTS_MAX {
            match self.copy_once(&copy).await {
                // The source's content went between reading the row and referring to it.
                Err(Error::Conflict) => {}
                outcome => return outcome,
            }
        }
        Err(Error::Conflict)
    }

    async fn copy_once(&self, copy: &CopyObject) -> Result<Copied, Error> {
        let there = self.find(&copy.bucket, &copy.key).await?;
        may_write(&copy.condition, there.object.as_ref())?;
        let expiry = self.expiry(&copy.bucket, copy.expiry, there.now)?;
        let resolved = self.copy_source(&copy.source).await?;
        let source = resolved.object.clone().ok_or(Error::NoSuchKey)?;
        let checksum = self.copy_checksum(copy.checksum, &source, resolved).await?;
        let row = PutRow {
            bucket: there.bucket,
            key: copy.key.clone(),
            version: VersionId::new(self.ids.fresh()),
            size_bytes: source.size_bytes,
            etag: source.etag.clone(),
            checksum: checksum.clone(),
            attributes: attributes_of(copy, &source),
            expiry,
        };
        let leaving = Leaving::of(&row);
        let committed = self.objects.commit_copy(row, source.content, copy.condition.clone()).await?;
        self.after_commit(committed);
        let departure = self.departure_of_written(&copy.bucket, &leaving, committed).await;
        Ok(Copied { etag: source.etag, last_modified: committed.last_modified, checksum, departure })
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

    /// The source's checksum, or the one that was asked for: bytes are read for it, none written.
    async fn copy_checksum(
        &self,
        wanted: Option<Algorithm>,
        source: &Object,
        resolved: Resolved,
    ) -> Result<Option<Checksum>, Error> {
        let known = source.checksum.clone();
        match wanted {
            Some(algorithm) if known.as_ref().is_none_or(|known| known.algorithm != algorithm) => {
                let body = self.read(source_of(resolved)?, ByteRange::whole(source.size_bytes)).await?;
                Ok(digest_of(body, source.size_bytes, wanted).await?.checksum)
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
    // The storage class belongs to the copy, whatever the directive says.
    attributes.headers.storage_class.clone_from(&copy.storage_class);
    attributes
}
