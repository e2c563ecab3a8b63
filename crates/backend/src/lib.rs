//! Where bytes live: one trait, its implementations, and layers that wrap them.
//!
//! A backend stores immutable bytes under physical keys that are written at most once. It knows
//! nothing of buckets, objects or the catalog. What it answers about absence is proof or it is
//! `Unknown`; the difference decides whether anything may be destroyed.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;
use s3o_model::physical_key::NameStyle;

pub mod body;
pub mod canaries;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod error;
pub mod fleet;
pub mod fs;
mod hex;
pub mod identity;
pub mod layers;
pub mod memory;
pub mod s3;

pub use error::{BodyError, Error};
pub use fleet::Fleet;
pub use fs::{Fs, FsOptions};
pub use memory::Memory;
pub use s3::{S3, S3Options};

/// Where backends that need them keep the unfinished bytes of a key, under the key's identifier.
pub const DRAFTS: &str = ".s3o/tmp/";

/// Bytes on their way; a consumer that drops it stops the producer.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

/// What was stored, in the words of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// How many bytes the store took.
    pub size_bytes: u64,
    /// The store's ETag without quotes, where it has one.
    pub etag: Option<String>,
    /// The store's version id, where it keeps versions: deletes must then name it.
    pub version_id: Option<String>,
}

/// Part of the bytes under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// The answer to "are there bytes under this key?".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// They are there.
    Present(Present),
    /// They are not there, and that is proven: the store answered for this very key.
    Absent,
    /// Nobody can tell: a timeout, a refusal, a 404 of the wrong kind.
    Unknown(String),
}

/// What a probe or a listing tells of bytes that are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Their length.
    pub size_bytes: u64,
    /// The store's ETag without quotes, where it has one.
    pub etag: Option<String>,
}

/// Bytes that must go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// The physical key.
    pub key: String,
    /// The store's version id, where one was recorded.
    pub version_id: Option<String>,
}

/// What became of one key of a batch delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// The store says that the key is gone. Stores that do not tell "was there" from "was not"
    /// answer this for both.
    Deleted,
    /// The store proved that there was nothing to delete.
    Absent,
    /// The store is away: no connection, throttled, timed out. Not the key's fault.
    Away(String),
    /// The store did not say what happened to this key.
    Unknown(String),
    /// The store refuses to delete this key.
    Refused(String),
}

/// One page of a listing, keys strictly ascending by their bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The keys found.
    pub items: Vec<Listed>,
    /// Whether more may follow; only a page that says no ends a listing.
    pub truncated: bool,
}

/// One key of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The physical key.
    pub key: String,
    /// Its length.
    pub size_bytes: u64,
    /// The store's ETag without quotes, where it has one.
    pub etag: Option<String>,
    /// When the store last wrote it, by the store's clock.
    pub modified: Option<Timestamp>,
}

/// One part of a backend upload, as the store named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadedPart {
    /// Its number, from 1.
    pub number: u32,
    /// The store's ETag without quotes.
    pub etag: String,
}

/// An upload that was neither finished nor aborted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnfinishedUpload {
    /// The physical key.
    pub key: String,
    /// The store's upload id.
    pub upload: String,
}

/// One page of unfinished uploads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadsPage {
    /// The uploads found.
    pub items: Vec<UnfinishedUpload>,
    /// Where the next page begins, in the words of the store; only a page without it ends a listing.
    pub next: Option<UnfinishedUpload>,
}

/// What a backend was found to do when it was attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traits {
    /// How it treats names.
    pub name_style: NameStyle,
    /// Whether a plain PUT answers with the MD5 of the bytes, so that it can be compared.
    pub etag_is_md5: bool,
    /// Whether it keeps old versions, so that deletes must name one.
    pub keeps_versions: bool,
    /// Its clock minus ours, in milliseconds, where it tells.
    pub clock_skew_ms: Option<i64>,
}

/// A place for bytes.
///
/// Contracts are stated here and tested in `conformance` on every implementation.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// The configured name.
    fn name(&self) -> &BackendName;

    /// The largest body that `put` takes in one go; larger ones go through an upload.
    fn put_bytes_max(&self) -> u64;

    /// Finds out what this backend does, by trying it under `.s3o/`, and leaves nothing behind.
    async fn probe_traits(&self) -> Result<Traits, Error>;

    /// Stores exactly `size_bytes` bytes under a key that was never used before, durably: when
    /// this answers, a power cut does not lose them. A body that ends early or runs over leaves
    /// nothing visible under the key and is `Error::Body`.
    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error>;

    /// Streams the bytes of a span; whole object when `span` is `None`. A missing key is
    /// `Error::NotFound` before the first byte. A stream that breaks yields an error item, it
    /// never just ends.
    async fn get(&self, key: &str, span: Option<Span>) -> Result<ByteStream, Error>;

    /// Tells whether bytes are under a key.
    async fn probe(&self, key: &str) -> Probe;

    /// Deletes up to 1000 keys, with whatever temporary traces they left. The answers are in the
    /// order of the keys, one each.
    async fn delete_batch(&self, doomed: &[Doomed]) -> Vec<DeleteAnswer>;

    /// Lists keys after `after` (exclusive) that start with `prefix`, in byte order, `.s3o/` left
    /// out unless the prefix starts with it.
    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error>;

    /// Opens a backend upload and names it.
    async fn start_upload(&self, key: &str) -> Result<String, Error>;

    /// Stores one part of a backend upload.
    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error>;

    /// Makes the key visible from the parts.
    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error>;

    /// Forgets an upload and frees its parts; one that does not exist is `Absent`, or `Deleted`
    /// where the store does not tell the two apart.
    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer;

    /// The unfinished uploads of exactly this key.
    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error>;

    /// Lists the unfinished uploads of all keys, from where the page before said.
    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error>;

    /// Reads a small object of s3o's own (`.s3o/...`); `None` when it is proven absent.
    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error>;

    /// Writes or replaces a small object of s3o's own, durably.
    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error>;

    /// Whether the configured place leads to another store than the one that was opened, as after a
    /// disk was exchanged. Until [`Backend::reopen_place`], only s3o's own objects can be read there.
    async fn place_changed(&self) -> bool {
        false
    }

    /// Opens what the configured place leads to now. The caller must prevent writes there until it has
    /// compared the identity.
    async fn reopen_place(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// Which part of which upload.
#[derive(Debug, Clone, Copy)]
pub struct PartOf<'a> {
    /// The physical key.
    pub key: &'a str,
    /// The store's upload id.
    pub upload: &'a str,
    /// The part's number, from 1.
    pub number: u32,
}

/// A shared backend.
pub type SharedBackend = Arc<dyn Backend>;
