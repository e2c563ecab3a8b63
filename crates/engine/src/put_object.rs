//! Stores an object.

use std::sync::Arc;

use s3o_backend::ByteStream;
use s3o_catalog::{CommitPut, Committed, PutRow};
use s3o_model::checksum::{Algorithm, Checksum};
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::expiry::Expiry;
use s3o_model::ids::{ContentId, VersionId};
use s3o_model::intent::{DeclaredDigests, Draft, IntentKind};
use s3o_model::lifecycle::ScheduledDeletion;
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::{Attributes, Object};
use s3o_model::recovery::Recovery;

use crate::expiration::NewObject;
use crate::write::{WriteTarget, WrittenBytes};
use crate::{Engine, Error};

/// Digests that the client declares before or after the body; each is verified.
#[derive(Clone, Default)]
pub struct Declared {
    /// Declared in headers, before the body.
    pub digests: DeclaredDigests,
    /// Declared in the trailer, after the body.
    pub trailer: Option<Trailer>,
    /// Checksum to compute if the client declares none.
    pub compute: Option<Algorithm>,
}

/// A checksum in the trailer of the body.
#[derive(Clone)]
pub struct Trailer {
    /// Algorithm named by `x-amz-trailer`.
    pub algorithm: Algorithm,
    /// Returns the value in base64 once the body was read to its end.
    pub value: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

/// A request to store an object.
pub struct PutObject {
    /// Must exist, or the write fails with `NoSuchBucket`.
    pub bucket: BucketName,
    /// Key of the object; an existing object is replaced.
    pub key: ObjectKey,
    /// Exact length of the body; any other length is an error.
    pub size_bytes: u64,
    /// Bytes of the object.
    pub body: ByteStream,
    /// Digests to verify.
    pub declared: Declared,
    /// Headers, metadata and tags of the object.
    pub attributes: Attributes,
    /// Condition on the current object, checked again in the commit.
    pub condition: WriteCondition,
    /// Expiration; `None` means the bucket's default.
    pub expiry: Option<Expiry>,
}

/// Result of a successful PUT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    /// MD5 of the body.
    pub etag: ETag,
    /// New for every write.
    pub version: VersionId,
    /// Checksum, if one was declared or requested.
    pub checksum: Option<Checksum>,
    /// When the object expires or a lifecycle rule deletes it.
    pub expiration: Option<ScheduledDeletion>,
}

impl Declared {
    /// The checksum to compute besides MD5 and SHA-256.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        let header = self.digests.checksum.as_ref().map(|checksum| checksum.algorithm);
        header.or(self.trailer.as_ref().map(|trailer| trailer.algorithm)).or(self.compute)
    }
}

impl Engine {
    /// Stores an object; it is committed when this returns.
    ///
    /// An intent precedes the bytes, so a crash at any step leaves an intent for the reaper, never bytes that no row
    /// names.
    pub async fn put_object(&self, put: PutObject) -> Result<StoredObject, Error> {
        let engine = self.clone();
        self.tasks.run(async move { engine.put(put).await }).await
    }

    async fn put(&self, mut put: PutObject) -> Result<StoredObject, Error> {
        if put.size_bytes > self.settings().object_bytes_max {
            return Err(Error::TooLarge { max_bytes: self.settings().object_bytes_max });
        }
        let found = self.find(&put.bucket, &put.key).await?;
        may_write(&put.condition, found.object.as_ref())?;
        put.expiry = self.expiry(&put.bucket, put.expiry, found.now)?;
        let target = WriteTarget {
            kind: IntentKind::Object,
            bucket: found.bucket,
            bucket_name: &put.bucket,
            key: &put.key,
            size_bytes: put.size_bytes,
            draft: self.draft(&put),
            settings: self.bucket_settings(&put.bucket),
        };
        let written = self.write_bytes(target, put.body, put.declared).await?;
        let row = PutRow {
            bucket: found.bucket,
            key: put.key.clone(),
            version: VersionId::new(self.ids.fresh()),
            size_bytes: put.size_bytes,
            etag: ETag::of_whole(written.digests.md5),
            checksum: written.digests.checksum.clone(),
            attributes: put.attributes,
            expiry: put.expiry,
        };
        let new = NewObject::of(&row);
        let (stored, committed) = self.commit_put(written, row, (put.condition, found.object.is_none())).await?;
        let expiration = match committed {
            Some(committed) => self.expiration_of_new(&put.bucket, &new, committed).await,
            None => self.expiration_of_version(&put.bucket, &put.key, stored.version).await,
        };
        Ok(StoredObject { expiration, ..stored })
    }

    /// What the reaper needs to commit this write; `None` if the bytes could not be verified.
    fn draft(&self, put: &PutObject) -> Option<Draft> {
        let declared = put.declared.digests.clone();
        let can_promote = self.settings().recovery == Recovery::Promote && !declared.is_empty();
        can_promote.then(|| Draft {
            attributes: put.attributes.clone(),
            condition: put.condition.clone(),
            declared,
            checksum: put.declared.algorithm(),
            expiry: put.expiry,
        })
    }

    /// Commits the object. The second value is `None` if the answer to a successful commit was lost.
    async fn commit_put(
        &self,
        written: WrittenBytes,
        row: PutRow,
        (condition, is_first): (WriteCondition, bool),
    ) -> Result<(StoredObject, Option<Committed>), Error> {
        let stored = StoredObject {
            etag: row.etag.clone(),
            version: row.version,
            checksum: row.checksum.clone(),
            expiration: None,
        };
        let commit = CommitPut {
            stored: written.stored(),
            content: ContentId::new(self.ids.fresh()),
            md5: written.digests.md5,
            sha256: Some(written.digests.sha256),
            plan: written.plan,
            row,
            condition,
            is_first,
            factor: written.settings.factor,
        };
        match self.sharing.commit_put(commit, self.write_copies(&written.settings).min).await {
            Ok(committed) => {
                self.count_committed(&written);
                self.after_commit(committed);
                Ok((stored, Some(committed)))
            }
            Err(error) => self.end_uncommitted(&written, (stored, None), error).await,
        }
    }
}

/// Checks the condition of a write before its body is read; the commit checks it again.
pub(crate) fn may_write(condition: &WriteCondition, current: Option<&Object>) -> Result<(), Error> {
    match (condition, current) {
        (WriteCondition::IfAbsent, Some(_)) => Err(Error::PreconditionFailed("If-None-Match")),
        (WriteCondition::IfMatch(_), None) => Err(Error::NoSuchKey),
        (WriteCondition::IfMatch(Some(etag)), Some(object)) if *etag != object.etag => {
            Err(Error::PreconditionFailed("If-Match"))
        }
        (WriteCondition::None | WriteCondition::IfAbsent | WriteCondition::IfMatch(_), _) => Ok(()),
    }
}
