//! Objects: what S3 shows under a bucket and a key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checksum::Checksum;
use crate::clock::Timestamp;
use crate::etag::ETag;
use crate::ids::{BucketId, ContentId, VersionId};
use crate::names::ObjectKey;

/// Headers that a client attaches to an object and gets back unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Headers {
    /// `Content-Type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// `Cache-Control`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_control: Option<String>,
    /// `Content-Disposition`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_disposition: Option<String>,
    /// `Content-Encoding`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_encoding: Option<String>,
    /// `Content-Language`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_language: Option<String>,
    /// `Expires`, as the client wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// `x-amz-storage-class`; absent means `STANDARD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// `x-amz-meta-*`, names in lower case.
pub type UserMetadata = BTreeMap<String, String>;

/// Tags, in the order of their keys.
pub type Tags = BTreeMap<String, String>;

/// All that a client says of an object besides its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// System headers.
    pub headers: Headers,
    /// User metadata.
    pub metadata: UserMetadata,
    /// Tags.
    pub tags: Tags,
}

/// The current row of a bucket and a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The bucket it lies in.
    pub bucket: BucketId,
    /// Its key.
    pub key: ObjectKey,
    /// Changes with every write.
    pub version: VersionId,
    /// The content it refers to.
    pub content: ContentId,
    /// Its length.
    pub size_bytes: u64,
    /// Its `ETag`.
    pub etag: ETag,
    /// Its checksum, where the client asked for one.
    pub checksum: Option<Checksum>,
    /// What the client attached.
    pub attributes: Attributes,
    /// When it was written.
    pub last_modified: Timestamp,
    /// When it ceases to exist.
    pub expires_at: Option<Timestamp>,
}

/// What a listing shows of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// Its key.
    pub key: ObjectKey,
    /// Its length.
    pub size_bytes: u64,
    /// Its `ETag`.
    pub etag: ETag,
    /// When it was written.
    pub last_modified: Timestamp,
    /// Its storage class, where it is not `STANDARD`.
    pub storage_class: Option<String>,
    /// Its checksum, where the client asked for one.
    pub checksum: Option<Checksum>,
}
