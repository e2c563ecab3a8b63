//! What a cleanup or a finding names under a physical key, and what is expected there.
//!
//! A cleanup removes its target and nothing else. A key of s3o is written once, but its store may hold several things
//! under it: versions that other programs wrote over it, unfinished uploads, and the temporary file of its write.

use serde::{Deserialize, Serialize};

use crate::cleanup::BackendUpload;

/// One thing under a physical key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// The only object under the key, and the temporary file of its write. On a store that keeps versions: the only
    /// version, if its ID was never learnt.
    Key,
    /// The version with this ID.
    Version(String),
    /// The unfinished upload with this ID.
    Upload(String),
    /// Every unfinished upload of the key: one was started, and its ID may be lost.
    StartingUpload,
    /// A temporary file below `.s3o/tmp/`; the physical key is its path. Its bytes may have another name as well.
    Draft,
}

const VERSION: &str = "version:";
const UPLOAD: &str = "upload:";
const STARTING_UPLOAD: &str = "upload";
const DRAFT: &str = "draft";

impl Target {
    /// The object under a key, by its version if one was recorded.
    #[must_use]
    pub fn of_version(version: Option<&str>) -> Self {
        version.map_or(Self::Key, |version| Self::Version(version.to_owned()))
    }

    /// The upload that an intent recorded; `None` if it recorded none.
    #[must_use]
    pub fn of_upload(upload: &BackendUpload) -> Option<Self> {
        match upload {
            BackendUpload::None => None,
            BackendUpload::Starting => Some(Self::StartingUpload),
            BackendUpload::Started(id) => Some(Self::Upload(id.clone())),
        }
    }

    /// Value of the catalog column; empty for a key.
    #[must_use]
    pub fn to_column(&self) -> String {
        match self {
            Self::Key => String::new(),
            Self::Version(id) => format!("{VERSION}{id}"),
            Self::Upload(id) => format!("{UPLOAD}{id}"),
            Self::StartingUpload => STARTING_UPLOAD.to_owned(),
            Self::Draft => DRAFT.to_owned(),
        }
    }

    /// Reads a value of `to_column`; `None` if it is not one.
    #[must_use]
    pub fn from_column(column: &str) -> Option<Self> {
        match column {
            "" => Some(Self::Key),
            STARTING_UPLOAD => Some(Self::StartingUpload),
            DRAFT => Some(Self::Draft),
            other => match (other.strip_prefix(VERSION), other.strip_prefix(UPLOAD)) {
                (Some(id), _) => Some(Self::Version(id.to_owned())),
                (None, Some(id)) => Some(Self::Upload(id.to_owned())),
                (None, None) => None,
            },
        }
    }

    /// The version to address on the backend.
    #[must_use]
    pub fn version_id(&self) -> Option<&str> {
        match self {
            Self::Version(id) => Some(id),
            Self::Key | Self::Upload(_) | Self::StartingUpload | Self::Draft => None,
        }
    }

    /// True for the object under the key or a version of it, false for the remains of a write.
    #[must_use]
    pub const fn is_object(&self) -> bool {
        match self {
            Self::Key | Self::Version(_) => true,
            Self::Upload(_) | Self::StartingUpload | Self::Draft => false,
        }
    }

    /// True if two targets under one physical key may be the same bytes. A key whose version was not learnt may be any
    /// version of it, and an upload whose ID is lost any upload.
    #[must_use]
    pub fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key, _) => other.is_object(),
            (_, Self::Key) => self.is_object(),
            (Self::StartingUpload, Self::Upload(_)) | (Self::Upload(_), Self::StartingUpload) => true,
            (one, other) => one == other,
        }
    }
}

/// A key on a backend and the version to address; `None` addresses the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyVersion<'a> {
    /// Physical key.
    pub key: &'a str,
    /// Version ID of the store.
    pub version_id: Option<&'a str>,
}

impl<'a> KeyVersion<'a> {
    /// A version of a key, or its current one.
    #[must_use]
    pub const fn new(key: &'a str, version_id: Option<&'a str>) -> Self {
        Self { key, version_id }
    }
}

impl<'a> From<&'a str> for KeyVersion<'a> {
    fn from(key: &'a str) -> Self {
        Self { key, version_id: None }
    }
}

impl<'a> From<&'a String> for KeyVersion<'a> {
    fn from(key: &'a String) -> Self {
        Self { key, version_id: None }
    }
}

/// Properties that distinguish a file from another one under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Time of the last write in nanoseconds since the Unix epoch, by the clock of the file system.
    pub modified_ns: i64,
    /// Number of the file in its file system.
    pub inode: u64,
    /// Number of names of the file. Another name changes nothing about its bytes, so it is never compared.
    pub links: u64,
}

/// The bytes that a cleanup expects under a key that other programs may rewrite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedBytes {
    /// Number of bytes.
    pub size_bytes: u64,
    /// ETag of the store without quotes; `None` on a folder.
    pub etag: Option<String>,
    /// Properties of the file; `None` on an S3 store.
    pub file: Option<FileStamp>,
}

impl ExpectedBytes {
    /// How the bytes that were found differ; `None` if they are the expected ones. Bytes that neither an ETag nor a
    /// file distinguishes always differ.
    #[must_use]
    pub fn difference(&self, found: &Self) -> Option<String> {
        if self.size_bytes != found.size_bytes {
            return Some(format!("{} bytes instead of {}", found.size_bytes, self.size_bytes));
        }
        match ((&self.etag, &found.etag), (&self.file, &found.file)) {
            ((Some(expected), Some(found)), _) if expected == found => None,
            ((Some(expected), Some(found)), _) => Some(format!("ETag {found} instead of {expected}")),
            (_, (Some(expected), Some(found))) if expected.is_same(found) => None,
            (_, (Some(_), Some(_))) => Some("the file was replaced or written again".to_owned()),
            _ => Some("neither an ETag nor a file to compare".to_owned()),
        }
    }
}

impl FileStamp {
    fn is_same(&self, other: &Self) -> bool {
        (self.modified_ns, self.inode) == (other.modified_ns, other.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::{ExpectedBytes, FileStamp, Target};
    use crate::cleanup::BackendUpload;

    fn version(id: &str) -> Target {
        Target::Version(id.to_owned())
    }

    fn upload(id: &str) -> Target {
        Target::Upload(id.to_owned())
    }

    #[test]
    fn every_target_is_read_back_from_its_column() {
        let targets = [Target::Key, version("null"), version(""), upload("a:b"), Target::StartingUpload, Target::Draft];
        for target in targets {
            assert_eq!(Target::from_column(&target.to_column()), Some(target));
        }
        assert_eq!(Target::from_column("other"), None);
    }

    #[test]
    fn key_may_be_any_version_and_no_upload() {
        assert!(Target::Key.may_be(&version("1")) && version("1").may_be(&Target::Key));
        assert!(version("1").may_be(&version("1")) && !version("1").may_be(&version("2")));
        for remains in [upload("a"), Target::StartingUpload, Target::Draft] {
            for object in [Target::Key, version("1")] {
                assert!(!object.may_be(&remains) && !remains.may_be(&object), "{object:?} {remains:?}");
            }
        }
    }

    #[test]
    fn upload_with_a_lost_id_may_be_any_upload() {
        assert!(Target::StartingUpload.may_be(&upload("a")) && upload("a").may_be(&Target::StartingUpload));
        assert!(!upload("a").may_be(&upload("b")));
        assert_eq!(Target::of_upload(&BackendUpload::Started("a".to_owned())), Some(upload("a")));
        assert_eq!(Target::of_upload(&BackendUpload::None), None);
    }

    fn in_store(size_bytes: u64, etag: &str) -> ExpectedBytes {
        ExpectedBytes { size_bytes, etag: Some(etag.to_owned()), file: None }
    }

    fn on_disk(modified_ns: i64, inode: u64, links: u64) -> ExpectedBytes {
        ExpectedBytes { size_bytes: 1, etag: None, file: Some(FileStamp { modified_ns, inode, links }) }
    }

    #[test]
    fn rewritten_bytes_differ_by_size_or_etag() {
        assert_eq!(in_store(1, "a").difference(&in_store(1, "a")), None);
        assert!(in_store(1, "a").difference(&in_store(2, "a")).is_some());
        assert!(in_store(1, "a").difference(&in_store(1, "b")).is_some());
    }

    #[test]
    fn rewritten_file_differs_by_time_or_inode_and_not_by_its_number_of_names() {
        assert_eq!(on_disk(1, 2, 1).difference(&on_disk(1, 2, 5)), None);
        assert!(on_disk(1, 2, 1).difference(&on_disk(2, 2, 1)).is_some());
        assert!(on_disk(1, 2, 1).difference(&on_disk(1, 3, 1)).is_some());
    }

    #[test]
    fn bytes_without_distinguishing_properties_differ() {
        let bare = ExpectedBytes { size_bytes: 1, etag: None, file: None };
        assert!(bare.difference(&bare).is_some());
        assert!(on_disk(1, 2, 1).difference(&in_store(1, "a")).is_some());
    }
}
