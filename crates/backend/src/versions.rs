//! Listings of stores that keep versions.

use s3o_model::clock::Timestamp;

/// One version of a key, or a delete marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedVersion {
    /// Physical key, or the key of an object of s3o's own.
    pub key: String,
    /// Version ID of the store; `null` for bytes that were stored before the store kept versions.
    pub version_id: String,
    /// True for the version that a read of the key returns.
    pub is_latest: bool,
    /// True for a delete marker, which has no bytes.
    pub is_delete_marker: bool,
    /// Number of stored bytes.
    pub size_bytes: u64,
    /// ETag of the store without quotes; `None` for a delete marker.
    pub etag: Option<String>,
    /// Time of the write by the store's clock.
    pub modified: Option<Timestamp>,
}

/// Where a page of versions ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionPosition {
    /// Key of the last entry.
    pub key: String,
    /// Version of the last entry; `None` continues after all versions of the key.
    pub version_id: Option<String>,
}

/// Versions and delete markers in the order of a listing, up to the requested number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionsPage {
    /// At most as many entries as requested.
    pub items: Vec<ListedVersion>,
    /// Start of the next page; `None` on the last one. A page may be shorter than requested.
    pub next: Option<VersionPosition>,
}
