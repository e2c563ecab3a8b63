//! Storage backends: one trait, its implementations, and layers that wrap them.
//!
//! A backend stores immutable bytes under physical keys that are written at most once. It does not know buckets,
//! objects or the catalog. It reports a key as absent only if that is proven, and as `Unknown` otherwise: only proven
//! absence allows deletions.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;
use s3o_model::physical_key::NameStyle;
use s3o_model::target::{ExpectedBytes, FileStamp, KeyVersion};

pub mod body;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
pub mod error;
pub mod fleet;
pub mod fs;
pub mod identity;
pub mod layers;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
pub mod probe_objects;
pub mod s3;
pub mod usage;
mod versions;

pub use error::{BodyError, Error};
pub use fleet::Fleet;
pub use fs::{Fs, FsOptions};
#[cfg(any(test, feature = "testing"))]
pub use memory::Memory;
pub use s3::{S3, S3Options};
pub use versions::{ListedVersion, VersionPosition, VersionsPage};

/// Prefix of the files in which folder backends store incomplete bodies, named by the identifier of their key.
pub const DRAFTS: &str = ".s3o/tmp/";

/// A stream of bytes; dropping it stops the producer.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, BodyError>> + Send>>;

/// Result of a successful write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Number of stored bytes.
    pub size_bytes: u64,
    /// ETag of the store without quotes; `None` if it has none.
    pub etag: Option<String>,
    /// Version ID, if the store keeps versions: deletes must then name it.
    pub version_id: Option<String>,
}

/// A range of the bytes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Position of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// Result of a probe of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// The key exists.
    Present(Present),
    /// The key is proven absent: the store answered for exactly this key.
    Absent,
    /// The answer proves nothing: a timeout, a refusal, a 404 without an error code.
    Unknown(String),
}

/// Properties of a key that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Number of stored bytes.
    pub size_bytes: u64,
    /// ETag of the store without quotes; `None` if it has none.
    pub etag: Option<String>,
    /// Version ID, if the store keeps versions.
    pub version_id: Option<String>,
    /// The file, on a folder.
    pub file: Option<FileStamp>,
}

impl Present {
    /// What a cleanup expects if it is to delete these bytes and no others.
    #[must_use]
    pub fn expected(&self) -> ExpectedBytes {
        ExpectedBytes { size_bytes: self.size_bytes, etag: self.etag.clone(), file: self.file }
    }
}

/// A target of [`Backend::delete_batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteKey {
    /// Physical key to delete.
    pub key: String,
    /// Version ID of the store: only this version is deleted. Without one, the only object under the key is: a store
    /// that keeps versions refuses if the key has several.
    pub version_id: Option<String>,
}

/// Result for one key of a batch delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// The key does not exist any more. Some stores do not report whether it existed before.
    Deleted,
    /// The store proved that the key did not exist.
    Absent,
    /// The store is unavailable: no connection, throttled, timed out. This says nothing about the key.
    Away(String),
    /// The response does not say whether the key was deleted.
    Unknown(String),
    /// The store refuses to delete this key.
    Refused(String),
}

/// Result of [`Backend::delete_expected`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedDelete {
    /// The bytes were the expected ones, or were not compared.
    Answered(DeleteAnswer),
    /// Other bytes are there, for this reason; nothing was deleted.
    Changed(String),
}

/// One page of a listing, keys strictly ascending by their bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// At most as many keys as requested.
    pub items: Vec<Listed>,
    /// True if more keys may follow; a page may be shorter than requested.
    pub truncated: bool,
}

/// One key of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Physical key, or the key of an object of s3o's own.
    pub key: String,
    /// Number of stored bytes.
    pub size_bytes: u64,
    /// ETag of the store without quotes; `None` if it has none.
    pub etag: Option<String>,
    /// Time of the last write by the store's clock.
    pub modified: Option<Timestamp>,
    /// The file, on a folder.
    pub file: Option<FileStamp>,
}

/// A stored part of a backend upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadedPart {
    /// Part number, from 1.
    pub number: u32,
    /// ETag of the store without quotes.
    pub etag: String,
}

/// An upload that was neither finished nor aborted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnfinishedUpload {
    /// Physical key of the upload.
    pub key: String,
    /// Upload ID of the store.
    pub upload: String,
}

/// One page of unfinished uploads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UploadsPage {
    /// Uploads that were neither completed nor aborted.
    pub items: Vec<UnfinishedUpload>,
    /// Start of the next page, as the store returned it; `None` on the last page.
    pub next: Option<UnfinishedUpload>,
}

/// Probed properties of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traits {
    /// How the backend treats case and Unicode forms of names.
    pub name_style: NameStyle,
    /// True if the ETag of a single PUT is the MD5 of its bytes.
    pub etag_is_md5: bool,
    /// True if the store keeps old versions, so that deletes must name one.
    pub keeps_versions: bool,
    /// Clock of the store minus the clock of this process, in milliseconds; `None` if the store sends no date.
    pub clock_skew_ms: Option<i64>,
}

/// Stores bytes under physical keys.
///
/// `conformance` tests the contract of each method on every implementation.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// Name in the configuration.
    fn name(&self) -> &BackendName;

    /// Largest body that `put` accepts; larger ones need an upload.
    fn put_bytes_max(&self) -> u64;

    /// Probes the traits with objects under `.s3o/`, which it deletes.
    async fn probe_traits(&self) -> Result<Traits, Error>;

    /// Stores exactly `size_bytes` bytes under a key that was never used before. After the return they survive a power
    /// cut. A body with another length is `Error::Body`, and the key does not exist.
    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error>;

    /// Streams a span of a key or of a version, or all bytes for `None`. A missing key is `Error::NotFound` before the
    /// first byte. An interrupted stream ends with an error item, never early without one.
    async fn get(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error>;

    /// Checks whether a key, or a version of it, exists.
    async fn probe(&self, at: KeyVersion<'_>) -> Probe;

    /// Deletes up to 1000 keys and their temporary files. Returns one answer per key, in the order of the keys.
    async fn delete_batch(&self, targets: &[DeleteKey]) -> Vec<DeleteAnswer>;

    /// Deletes a key that other programs may rewrite, if its bytes are still the expected ones. They are compared
    /// first, and once more by the store where it can. A temporary file stays.
    async fn delete_expected(&self, target: &DeleteKey, expected: &ExpectedBytes) -> ExpectedDelete;

    /// Lists keys after `after` (exclusive) that start with `prefix`, in byte order. Keys under `.s3o/` are omitted
    /// unless the prefix starts with it.
    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error>;

    /// Lists versions and delete markers after a position (exclusive) whose keys start with `prefix`: keys in byte
    /// order, and the versions of a key newest first. Keys under `.s3o/` are omitted unless the prefix starts with it.
    /// A store that keeps no versions, or does not list keys in byte order, answers `Unsupported`.
    async fn list_versions(
        &self,
        prefix: &str,
        after: Option<&VersionPosition>,
        limit: usize,
    ) -> Result<VersionsPage, Error>;

    /// Starts a backend upload and returns its ID.
    async fn start_upload(&self, key: &str) -> Result<String, Error>;

    /// Stores a part; it replaces a part with the same number.
    async fn put_part(&self, part: PartOf<'_>, size_bytes: u64, body: ByteStream) -> Result<UploadedPart, Error>;

    /// Joins the parts; the key exists from then on.
    async fn finish_upload(&self, key: &str, upload: &str, parts: &[UploadedPart]) -> Result<Written, Error>;

    /// Aborts an upload and deletes its parts. A missing upload is `Absent`, or `Deleted` if the store does not
    /// distinguish the two.
    async fn abort_upload(&self, key: &str, upload: &str) -> DeleteAnswer;

    /// IDs of the unfinished uploads of exactly this key.
    async fn uploads_of(&self, key: &str) -> Result<Vec<String>, Error>;

    /// Lists the unfinished uploads of all keys; `from` is `next` of the previous page.
    async fn list_uploads(&self, from: Option<&UnfinishedUpload>) -> Result<UploadsPage, Error>;

    /// Reads a small object of s3o's own (`.s3o/...`); `None` when it is proven absent.
    async fn read_own(&self, key: &str) -> Result<Option<Bytes>, Error>;

    /// Writes or replaces a small object of s3o's own, durably.
    async fn write_own(&self, key: &str, body: Bytes) -> Result<(), Error>;

    /// True if the configured path leads to another store than the opened one, for example after a disk was exchanged.
    /// Until [`Backend::reopen_store`], only s3o's own objects can be read there.
    async fn store_changed(&self) -> bool {
        false
    }

    /// Opens the store that the configured path leads to now. If it is another one than before, `put` and
    /// `delete_batch` answer "away" until [`Backend::trust_store`]: a call that was meant for the store before must not
    /// reach this one.
    async fn reopen_store(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Permits writes and deletes on the opened store. Its identity was compared, or an operator accepted it.
    async fn trust_store(&self) {}
}

/// Address of a part.
#[derive(Debug, Clone, Copy)]
pub struct PartOf<'a> {
    /// Physical key of the upload.
    pub key: &'a str,
    /// Upload ID of the store.
    pub upload: &'a str,
    /// Part number, from 1.
    pub number: u32,
}

/// A backend that requests and workers use concurrently.
pub type SharedBackend = Arc<dyn Backend>;
