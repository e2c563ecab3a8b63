//! Intents: rows that announce bytes before they are written to a backend.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::checksum::{Algorithm, Checksum};
use crate::clock::Timestamp;
use crate::conditions::WriteCondition;
use crate::content::Location;
use crate::etag::{Md5, Sha256};
use crate::expiry::Expiry;
use crate::ids::{BucketId, IntentId, UploadId, WriteId};
use crate::names::{BackendName, ObjectKey};
use crate::object::Attributes;

/// What the announced bytes belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentKind {
    /// The whole body of a PUT or a copy.
    Object,
    /// A part of a multipart upload.
    Part {
        /// Identifier of the upload.
        upload: UploadId,
        /// Part number.
        number: u32,
    },
}

/// The announcement of one copy of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Identifier of the intent; also part of the physical key.
    pub id: IntentId,
    /// Identifier of the write; all copies share it.
    pub write: WriteId,
    /// What the bytes belong to.
    pub kind: IntentKind,
    /// Bucket of the object.
    pub bucket: BucketId,
    /// Key of the object.
    pub key: ObjectKey,
    /// Backend that will store the copy.
    pub backend: BackendName,
    /// Key of the copy on that backend.
    pub physical_key: String,
    /// Reserved bytes.
    pub size_bytes: u64,
    /// The object's row, if the reaper can commit the write without its writer.
    pub draft: Option<Draft>,
}

impl Intent {
    /// Backend and physical key of the copy.
    #[must_use]
    pub fn place(&self) -> Location {
        let (backend, physical_key) = (self.backend.clone(), self.physical_key.clone());
        Location { backend, physical_key, backend_version: None }
    }
}

/// Everything that an object's row needs besides its bytes. It is stored with the intent, so that the
/// reaper can commit the write after its writer crashed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    /// Headers, metadata and tags of the object.
    pub attributes: Attributes,
    /// Condition of the write.
    pub condition: WriteCondition,
    /// Digests that the client declared; without one the stored bytes cannot be verified.
    pub declared: DeclaredDigests,
    /// Algorithm of the object's checksum.
    pub checksum: Option<Algorithm>,
    /// Expiration of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
}

/// Digests that a client declared before it sent the bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredDigests {
    /// `Content-MD5`.
    pub md5: Option<Md5>,
    /// `x-amz-content-sha256`, the signed payload hash.
    pub sha256: Option<Sha256>,
    /// An `x-amz-checksum-*` header.
    pub checksum: Option<Checksum>,
}

impl DeclaredDigests {
    /// True if the stored bytes could not be verified.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.md5.is_none() && self.sha256.is_none() && self.checksum.is_none()
    }

    /// The header name of the first declared digest that does not match.
    #[must_use]
    pub fn mismatch(&self, md5: Md5, sha256: Sha256, checksum: Option<&Checksum>) -> Option<&'static str> {
        let declared = self.checksum.as_ref();
        if self.md5.is_some_and(|declared| declared != md5) {
            Some("Content-MD5")
        } else if self.sha256.is_some_and(|declared| declared != sha256) {
            Some("x-amz-content-sha256")
        } else if declared.is_some_and(|declared| Some(&declared.value) != checksum.map(|computed| &computed.value)) {
            Some("checksum")
        } else {
            None
        }
    }
}

/// One copy of a write whose lease expired, fenced so that its writer can no longer commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// Identifier of the intent.
    pub id: IntentId,
    /// Identifier of the write.
    pub write: WriteId,
    /// Backend and key where its bytes may be; `None` for an intent that only pins content.
    pub place: Option<(BackendName, String)>,
    /// Reserved bytes.
    pub size_bytes: u64,
    /// Bucket of the object.
    pub bucket: BucketId,
    /// Name of the bucket; `None` if the bucket was deleted.
    pub bucket_name: Option<String>,
    /// Key of the object; `None` for another copy of existing content.
    pub key: Option<ObjectKey>,
    /// True if a later change of the key was acknowledged.
    pub superseded: bool,
    /// The object's row, if the write can be committed.
    pub draft: Option<Draft>,
    /// Time since the announcement.
    pub age: Duration,
}

/// Interval of lease renewals: three per lease, so that one failed renewal does not end an upload.
#[must_use]
pub fn renewal_interval(lease: Duration) -> Duration {
    (lease / 3).max(Duration::from_millis(1))
}

/// True if a writer whose lease of this length ends at `lease_until` still owns its intents. A lease that ends later
/// than a new one would was taken before the clock was set back: the watchdog may have ended it.
#[must_use]
pub fn lease_holds(lease_until: Timestamp, lease: Duration, now: Timestamp) -> bool {
    now < lease_until && lease_until <= now.after(lease)
}
