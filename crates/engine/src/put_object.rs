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
use s3o_model::lifecycle::Departure;
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::{Attributes, Object};
use s3o_model::recovery::Recovery;

use crate::departure::Leaving;
use crate::write::{Target, WrittenBytes};
use crate::{Engine, Error};

/// What the sender says of the bytes before or after sending them; each is verified.
#[derive(Clone, Default)]
pub struct Declared {
    /// What is said before the body.
    pub digests: DeclaredDigests,
    /// A checksum in the trailer.
    pub trailer: Option<Trailer>,
    /// A checksum that the sender wants computed though it declares none.
    pub compute: Option<Algorithm>,
}

/// A checksum that arrives behind the body.
#[derive(Clone)]
pub struct Trailer {
    /// Its algorithm.
    pub algorithm: Algorithm,
    /// Its base64 value, known once the body was read to its end.
    pub value: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

/// A request to store an object.
pub struct PutObject {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// The exact length of the body.
    pub size_bytes: u64,
    /// The bytes.
    pub body: ByteStream,
    /// What the sender says of them.
    pub declared: Declared,
    /// What the object carries.
    pub attributes: Attributes,
    /// When it may be stored.
    pub condition: WriteCondition,
    /// When it ceases to exist; `None`: when its bucket says.
    pub expiry: Option<Expiry>,
}

/// A stored object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its `ETag`.
    pub etag: ETag,
    /// Its version.
    pub version: VersionId,
    /// Its checksum, where one was declared or asked for.
    pub checksum: Option<Checksum>,
    /// When it goes by itself.
    pub departure: Option<Departure>,
}

impl Declared {
    /// The checksum to compute besides MD5 and SHA-256.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        let header = self.digests.checksum.as_ref().map(|checksum| checksum.algorithm);
        header.or(self.trailer.as_ref().map(|trailer| trailer.algorithm)).or(self.compute)
    }
}

impl Engine {
    /// Stores an object and makes it visible.
    ///
    /// The catalog learns of the bytes before they are written, so a crash at any step leaves an
    /// intent for the reaper, never bytes that nobody knows.
    pub async fn put_object(&self, put: PutObject) -> Result<Stored, Error> {
        let engine = self.clone();
        self.tasks.run(async move { engine.put(put).await }).await
    }

    async fn put(&self, mut put: PutObject) -> Result<Stored, Error> {
        if put.size_bytes > self.settings().object_bytes_max {
            return Err(Error::TooLarge { max_bytes: self.settings().object_bytes_max });
        }
        let found = self.find(&put.bucket, &put.key).await?;
        may_write(&put.condition, found.object.as_ref())?;
        put.expiry = self.expiry(&put.bucket, put.expiry, found.now)?;
        let target = Target {
            kind: IntentKind::Object,
            bucket: found.bucket,
            bucket_name: &put.bucket,
            key: &put.key,
            size_bytes: put.size_bytes,
            draft: self.draft(&put),
            dedup: self.bucket_settings(&put.bucket).dedup,
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
        let leaving = Leaving::of(&row);
        let (stored, committed) = self.commit_put(written, row, (put.condition, found.object.is_none())).await?;
        let departure = match committed {
            Some(committed) => self.departure_of_written(&put.bucket, &leaving, committed).await,
            None => self.departure_of_version(&put.bucket, &put.key, stored.version).await,
        };
        Ok(Stored { departure, ..stored })
    }

    /// What the reaper would need to finish this write; `None` if it could not.
    fn draft(&self, put: &PutObject) -> Option<Draft> {
        let declared = put.declared.digests.clone();
        let wanted = self.settings().recovery == Recovery::Promote && !declared.is_empty();
        wanted.then(|| Draft {
            attributes: put.attributes.clone(),
            condition: put.condition.clone(),
            declared,
            checksum: put.declared.algorithm(),
            expiry: put.expiry,
        })
    }

    /// What was stored, and what the catalog answered, unless that was lost.
    async fn commit_put(
        &self,
        written: WrittenBytes,
        row: PutRow,
        (condition, is_first): (WriteCondition, bool),
    ) -> Result<(Stored, Option<Committed>), Error> {
        let stored =
            Stored { etag: row.etag.clone(), version: row.version, checksum: row.checksum.clone(), departure: None };
        let commit = CommitPut {
            landed: written.landed(),
            content: ContentId::new(self.ids.fresh()),
            md5: written.digests.md5,
            sha256: Some(written.digests.sha256),
            dedup: written.dedup,
            row,
            condition,
            is_first,
        };
        match self.objects.commit_put(commit).await {
            Ok(committed) => {
                self.settled(&written);
                self.after_commit(committed);
                Ok((stored, Some(committed)))
            }
            Err(error) => self.not_committed(&written, &error).await.of((stored, None), error),
        }
    }
}

/// Judges a write's condition before its body is read; the commit judges it again.
pub(crate) fn may_write(condition: &WriteCondition, there: Option<&Object>) -> Result<(), Error> {
    match (condition, there) {
        (WriteCondition::IfAbsent, Some(_)) => Err(Error::PreconditionFailed("If-None-Match")),
        (WriteCondition::IfMatch(_), None) => Err(Error::NoSuchKey),
        (WriteCondition::IfMatch(Some(etag)), Some(object)) if *etag != object.etag => {
            Err(Error::PreconditionFailed("If-Match"))
        }
        (WriteCondition::None | WriteCondition::IfAbsent | WriteCondition::IfMatch(_), _) => Ok(()),
    }
}
