//! Reads an object.

use s3o_backend::ByteStream;
use s3o_catalog::Resolved;
use s3o_model::conditions::ReadConditions;
use s3o_model::names::{BucketName, ObjectKey};

use crate::head_object::{FoundObject, RequestedRange};
use crate::read::ContentSource;
use crate::{Engine, Error};

/// Number of lookups of an object that is replaced faster than it is read.
const LOOKUPS_MAX: usize = 10;

/// A request to read an object.
#[derive(Debug, Clone)]
pub struct GetObject {
    /// Must exist, or the read fails with `NoSuchBucket`.
    pub bucket: BucketName,
    /// Must exist, or the read fails with `NoSuchKey`.
    pub key: ObjectKey,
    /// The bytes to return.
    pub wanted: RequestedRange,
    /// `If-*` headers of the request.
    pub conditions: ReadConditions,
}

/// An object whose body is ready to stream.
pub struct OpenedObject {
    /// The object and the range.
    pub found: FoundObject,
    /// Exactly the bytes of the range; an interrupted read ends with an error, never early without one.
    pub body: ByteStream,
}

impl Engine {
    /// Reads an object or a range of it.
    ///
    /// If the bytes are missing before the response starts, the object may have been replaced or moved since the
    /// lookup. It is resolved again, as long as that finds other content.
    pub async fn get_object(&self, get: GetObject) -> Result<OpenedObject, Error> {
        let mut missed = None;
        for _ in 0..LOOKUPS_MAX {
            let resolved = self.find(&get.bucket, &get.key).await?;
            let content = resolved.object.as_ref().map(|object| object.content);
            match self.open(&get, resolved).await {
                Err(Error::Damaged(_)) if content != missed => missed = content,
                outcome => return outcome,
            }
        }
        Err(Error::Away("the object was replaced during each attempt to read it".to_owned()))
    }

    async fn open(&self, get: &GetObject, resolved: Resolved) -> Result<OpenedObject, Error> {
        let found = self.found(get, &resolved).await?;
        let body = self.read_object(resolved, found.range).await?;
        Ok(OpenedObject { found, body })
    }
}

/// The content of a resolved object.
pub(crate) fn source_of(resolved: Resolved) -> Result<ContentSource, Error> {
    let object = resolved.object.ok_or(Error::NoSuchKey)?;
    Ok(match resolved.whole {
        Some(whole) => {
            ContentSource::Whole { content: object.content, size_bytes: object.size_bytes, copies: whole.copies }
        }
        None => ContentSource::Joined { content: object.content },
    })
}
