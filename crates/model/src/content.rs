//! Content: immutable bytes, and the locations where they are stored.

use crate::etag::Md5;
use crate::ids::ContentId;
use crate::names::BackendName;
use crate::target::KeyVersion;

/// One physical copy of one whole content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Backend that stores the copy.
    pub backend: BackendName,
    /// Key of the copy on that backend.
    pub physical_key: String,
    /// Version of the key that is the copy, if the backend keeps versions and returned one.
    pub backend_version: Option<String>,
}

impl Location {
    /// What reads, probes and deletes of the copy address.
    #[must_use]
    pub fn key_version(&self) -> KeyVersion<'_> {
        KeyVersion::new(&self.physical_key, self.backend_version.as_deref())
    }
}

/// How far the bytes of a copy are trusted. Reads try the most trusted copies first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopyTrust {
    /// Present, and verified since its backend was last accepted.
    Verified,
    /// Present, but not yet found on the store that an operator accepted.
    OlderThanAccept,
    /// A check found that its bytes are missing or not what was written.
    Suspect,
}

/// A copy that a read may open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadableCopy {
    /// Where it is stored.
    pub location: Location,
    /// How far its bytes are trusted.
    pub trust: CopyTrust,
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
    pub copies: Vec<ReadableCopy>,
}

impl Piece {
    /// True if the piece covers its whole content.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.length == self.whole_bytes
    }
}
