//! Content: immutable bytes, and the locations where they are stored.

use crate::etag::Md5;
use crate::ids::ContentId;
use crate::names::BackendName;

/// One physical copy of one whole content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Backend that stores the copy.
    pub backend: BackendName,
    /// Key of the copy on that backend.
    pub physical_key: String,
}

/// A range of one whole content, with the locations where it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Part number; 1 for content that was not uploaded in parts.
    pub number: u32,
    /// Offset of the piece in the object.
    pub start: u64,
    /// The whole content that the piece is a range of.
    pub whole: ContentId,
    /// Offset of the piece in that content.
    pub offset: u64,
    /// Length of the piece in bytes.
    pub length: u64,
    /// Size of the whole content in bytes.
    pub whole_bytes: u64,
    /// MD5 of the whole content.
    pub whole_md5: Md5,
    /// Copies of the whole content, in the order to try them.
    pub locations: Vec<Location>,
}

impl Piece {
    /// True if the piece covers its whole content.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.length == self.whole_bytes
    }
}
