//! Requests as clients send them, all in one bucket.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::unfold;
use s3o_engine::{
    BodyError, ByteStream, CopyObject, CopySource, Declared, DeleteObject, GetObject, PutObject, RequestedRange,
};
use s3o_model::conditions::{ReadConditions, WriteCondition};
use s3o_model::names::{BucketName, ObjectKey};
use s3o_model::object::Attributes;

use super::Harness;

/// The bucket of every suite.
#[must_use]
pub fn bucket() -> BucketName {
    "bucket".parse().expect("a valid bucket name")
}

/// Parses a key; panics where S3 allows no such key.
#[must_use]
pub fn key(text: &str) -> ObjectKey {
    text.parse().expect("a valid key")
}

/// Reads a whole object.
#[must_use]
pub fn get(name: &str) -> GetObject {
    GetObject { bucket: bucket(), key: key(name), wanted: RequestedRange::Whole, conditions: ReadConditions::default() }
}

/// Deletes an object without a condition.
#[must_use]
pub fn delete(name: &str) -> DeleteObject {
    DeleteObject { bucket: bucket(), key: key(name), condition: WriteCondition::None }
}

/// Copies an object with its metadata.
#[must_use]
pub fn copy(from: &str, to: &str) -> CopyObject {
    CopyObject {
        source: CopySource { bucket: bucket(), key: key(from), conditions: ReadConditions::default() },
        bucket: bucket(),
        key: key(to),
        replace_metadata: None,
        storage_class: None,
        replace_tags: None,
        condition: WriteCondition::None,
        checksum: None,
        expiry: None,
    }
}

impl<C> Harness<C> {
    /// A body in two chunks, with a call point before each. It fails once the client's token is dropped.
    #[must_use]
    pub fn body(&self, bytes: &[u8], client: &Arc<()>) -> ByteStream {
        let half = bytes.len() / 2;
        let chunks = [Bytes::copy_from_slice(&bytes[..half]), Bytes::copy_from_slice(&bytes[half..])].into_iter();
        let state = (chunks, Arc::downgrade(client), self.points.clone());
        Box::pin(unfold(state, |(mut chunks, client, points)| async move {
            points.step().await;
            let chunk = chunks.next()?;
            let item = match client.upgrade() {
                Some(_) => Ok(chunk),
                None => Err(BodyError::Broken("the client disconnected".to_owned())),
            };
            Some((item, (chunks, client, points)))
        }))
    }

    /// Stores a body from a client that is connected as long as its token exists.
    #[must_use]
    pub fn put(&self, name: &str, bytes: &[u8], client: &Arc<()>) -> PutObject {
        PutObject {
            bucket: bucket(),
            key: key(name),
            size_bytes: bytes.len() as u64,
            body: self.body(bytes, client),
            declared: Declared::default(),
            attributes: Attributes::default(),
            condition: WriteCondition::None,
            expiry: None,
        }
    }
}
