//! Intents: rows that say which bytes are about to be written where.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::ids::{BucketId, IntentId, UploadId, WriteId};
use crate::names::{BackendName, ObjectKey};

/// What the bytes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentKind {
    /// An object's bytes.
    Object,
    /// The bytes of one part of an upload.
    Part {
        /// The upload.
        upload: UploadId,
        /// The part's number.
        number: u32,
    },
}

/// A write that is about to happen, one copy of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Its identifier; also the one in the physical key.
    pub id: IntentId,
    /// The write it belongs to.
    pub write: WriteId,
    /// What the bytes are for.
    pub kind: IntentKind,
    /// The bucket of the object.
    pub bucket: BucketId,
    /// The key of the object.
    pub key: ObjectKey,
    /// Where the bytes go.
    pub backend: BackendName,
    /// Under which physical key.
    pub physical_key: String,
    /// How many bytes are reserved.
    pub size_bytes: u64,
}

/// An intent whose lease ran out, fenced so that its writer cannot commit any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedIntent {
    /// Its identifier.
    pub id: IntentId,
    /// Where its bytes may lie.
    pub backend: BackendName,
    /// Under which physical key.
    pub physical_key: String,
    /// How many bytes were reserved.
    pub size_bytes: u64,
}

/// When an open intent must be renewed: three times per lease, so that one failed renewal does
/// not end an upload.
#[must_use]
pub fn renewal_interval(lease: Duration) -> Duration {
    (lease / 3).max(Duration::from_millis(1))
}

/// Whether an owner that last obtained `lease_until` may still call its intents its own.
#[must_use]
pub fn lease_holds(lease_until: Timestamp, now: Timestamp) -> bool {
    now < lease_until
}
