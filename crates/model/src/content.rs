//! Content: immutable bytes, and where they lie.

use crate::etag::Md5;
use crate::ids::ContentId;
use crate::names::BackendName;

/// One physical copy of one whole content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The backend it lies on.
    pub backend: BackendName,
    /// Its physical key there.
    pub physical_key: String,
}

/// A range of one whole content, with the places where it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The part's number as the client gave it; 1 for content stored in one go.
    pub number: u32,
    /// Where the piece begins in the object.
    pub start: u64,
    /// The whole content that holds it.
    pub whole: ContentId,
    /// Where it begins in that content.
    pub offset: u64,
    /// How long it is.
    pub length: u64,
    /// How long the whole content is.
    pub whole_bytes: u64,
    /// The digest of the whole content.
    pub whole_md5: Md5,
    /// The copies of the whole content, best first.
    pub locations: Vec<Location>,
}

impl Piece {
    /// Whether the piece is all of its content.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.length == self.whole_bytes
    }
}
