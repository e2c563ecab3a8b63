//! Reads an object.

use s3o_backend::ByteStream;
use s3o_catalog::Resolved;
use s3o_model::conditions::ReadConditions;
use s3o_model::names::{BucketName, ObjectKey};

use crate::head_object::{Found, Wanted};
use crate::read::Source;
use crate::{Engine, Error};

/// A request to read an object.
#[derive(Debug, Clone)]
pub struct GetObject {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// How much of it.
    pub wanted: Wanted,
    /// When it is wanted.
    pub conditions: ReadConditions,
}

/// An object with its bytes on their way.
pub struct Opened {
    /// The object and the range.
    pub found: Found,
    /// Exactly the bytes of the range; a break is an error item, never a clean end.
    pub body: ByteStream,
}

impl Engine {
    /// Reads an object or a range of it.
    ///
    /// Bytes that are gone before the first one was sent were deleted or moved meanwhile: the
    /// object is resolved again, once.
    pub async fn get_object(&self, get: GetObject) -> Result<Opened, Error> {
        match self.open(&get).await {
            Err(Error::Damaged(_)) => self.open(&get).await,
            outcome => outcome,
        }
    }

    async fn open(&self, get: &GetObject) -> Result<Opened, Error> {
        let resolved = self.find(&get.bucket, &get.key).await?;
        let found = self.found(get, &resolved).await?;
        let body = self.read_object(resolved, found.range).await?;
        Ok(Opened { found, body })
    }
}

/// Where a resolved object's bytes are.
pub(crate) fn source_of(resolved: Resolved) -> Result<Source, Error> {
    let object = resolved.object.ok_or(Error::NoSuchKey)?;
    Ok(match resolved.whole {
        Some(whole) => {
            Source::Whole { content: object.content, size_bytes: object.size_bytes, locations: whole.locations }
        }
        None => Source::Joined { content: object.content },
    })
}
