//! Objects: the current row of a bucket and a key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::clock::Timestamp;
use crate::etag::ETag;
use crate::ids::{BucketId, ContentId, VersionId};
use crate::names::ObjectKey;

/// System headers that a client sets on an object and that reads return unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Headers {
    /// Media type of the body; `binary/octet-stream` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Directives for caches of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<String>,
    /// Suggested file name of a download.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_disposition: Option<String>,
    /// Encoding of the stored bytes, such as `gzip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// Language of the intended audience.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_language: Option<String>,
    /// `Expires`, as the client sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// `x-amz-storage-class`; absent means `STANDARD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// `x-amz-meta-*`, names in lower case.
pub type UserMetadata = BTreeMap<String, String>;

/// Tags by key.
pub type Tags = BTreeMap<String, String>;

/// Headers, metadata and tags that a client sets on an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// System headers.
    pub headers: Headers,
    /// User metadata.
    pub metadata: UserMetadata,
    /// At most 10, as in S3.
    pub tags: Tags,
}

/// The current row of a bucket and a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Identifier of the bucket.
    pub bucket: BucketId,
    /// Unique within the bucket.
    pub key: ObjectKey,
    /// New for every write.
    pub version: VersionId,
    /// The content that the object refers to.
    pub content: ContentId,
    /// Length of the body.
    pub size_bytes: u64,
    /// ETag without quotes.
    pub etag: ETag,
    /// Checksum, if the client requested one.
    pub checksum: Option<Checksum>,
    /// Headers, metadata and tags.
    pub attributes: Attributes,
    /// Time of the write.
    pub last_modified: Timestamp,
    /// Expiration; `None` if the object does not expire.
    pub expires_at: Option<Timestamp>,
}

/// The columns of an object that a listing returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Sort key of the listing.
    pub key: ObjectKey,
    /// Length of the body.
    pub size_bytes: u64,
    /// ETag without quotes.
    pub etag: ETag,
    /// Time of the write.
    pub last_modified: Timestamp,
    /// Storage class; `None` means `STANDARD`.
    pub storage_class: Option<String>,
    /// Checksum, if the client requested one.
    pub checksum: Option<Checksum>,
}
