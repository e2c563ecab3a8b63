//! Intents: rows that say which bytes are about to be written where.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::checksum::{Algorithm, Checksum};
use crate::clock::Timestamp;
use crate::conditions::WriteCondition;
use crate::etag::{Md5, Sha256};
use crate::expiry::Expiry;
use crate::ids::{BucketId, IntentId, UploadId, WriteId};
use crate::names::{BackendName, ObjectKey};
use crate::object::Attributes;

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
    /// What the object would be, where the write can be finished without its writer.
    pub draft: Option<Draft>,
}

/// All that an object's row needs besides its bytes, kept with the intent, so that a write whose
/// writer is gone can still be finished.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    /// What the object carries.
    pub attributes: Attributes,
    /// When it may be stored.
    pub condition: WriteCondition,
    /// What the sender said of the bytes; without it nobody can tell whether they are the ones meant.
    pub declared: DeclaredDigests,
    /// The checksum that the object is to show.
    pub checksum: Option<Algorithm>,
    /// When the object is to cease to exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
}

/// What a sender says of bytes before it sends them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredDigests {
    /// `Content-MD5`.
    pub md5: Option<Md5>,
    /// The signed payload hash.
    pub sha256: Option<Sha256>,
    /// A checksum header.
    pub checksum: Option<Checksum>,
}

impl DeclaredDigests {
    /// Whether nothing was said.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.md5.is_none() && self.sha256.is_none() && self.checksum.is_none()
    }

    /// The first thing that was said and does not hold, by the name of its header.
    #[must_use]
    pub fn mismatch(&self, md5: Md5, sha256: Sha256, checksum: Option<&Checksum>) -> Option<&'static str> {
        let theirs = self.checksum.as_ref();
        if self.md5.is_some_and(|declared| declared != md5) {
            Some("Content-MD5")
        } else if self.sha256.is_some_and(|declared| declared != sha256) {
            Some("x-amz-content-sha256")
        } else if theirs.is_some_and(|theirs| Some(&theirs.value) != checksum.map(|ours| &ours.value)) {
            Some("checksum")
        } else {
            None
        }
    }
}

/// One copy of a write whose lease ran out, fenced so that its writer cannot commit any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// The intent.
    pub id: IntentId,
    /// The write it belongs to.
    pub write: WriteId,
    /// Where its bytes may lie; `None` for one that only pins content.
    pub place: Option<(BackendName, String)>,
    /// How many bytes were reserved.
    pub size_bytes: u64,
    /// The bucket.
    pub bucket: BucketId,
    /// The bucket's name, unless it is gone.
    pub bucket_name: Option<String>,
    /// The key.
    pub key: ObjectKey,
    /// Whether a later change of the key was acknowledged.
    pub superseded: bool,
    /// What the write would have become, where it can be finished.
    pub draft: Option<Draft>,
    /// How long ago it was announced.
    pub age: Duration,
}

/// When an open intent must be renewed: three times per lease, so that one failed renewal does
/// not end an upload.
#[must_use]
pub fn renewal_interval(lease: Duration) -> Duration {
    (lease / 3).max(Duration::from_millis(1))
}

/// Whether an owner that last obtained `lease_until`, for this long, may still call its intents its own. A lease that
/// ends later than one from now would was obtained before a clock was set back: the watchdog may have ended it.
#[must_use]
pub fn lease_holds(lease_until: Timestamp, lease: Duration, now: Timestamp) -> bool {
    now < lease_until && lease_until <= now.after(lease)
}
