//! The identity object of a backend, and the meaning of a mismatch with the catalog.
//!
//! Each backend stores the cluster, its own name and a random mark with a sequence number that only
//! grows. Each mark also has its own write-once object, which distinguishes an identity object that a
//! late write replaced from a disk that was restored to an earlier state. This file makes pure decisions,
//! without I/O.

use bytes::Bytes;
use s3o_model::names::BackendName;
use serde::{Deserialize, Serialize};

use crate::Error;

mod marks;

pub use marks::{create_mark, fingerprint, mark_key, read_found, read_identity, remove_marks};

/// Key of the identity object on every backend.
pub const IDENTITY_KEY: &str = ".s3o/identity.json";

/// Prefix of the write-once mark objects.
pub const MARKS_PREFIX: &str = ".s3o/marks/";

/// Number of old marks that the catalog keeps for each backend.
pub const MARKS_KEPT: u64 = 16;

/// The identity object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The cluster that attached the backend.
    pub cluster: String,
    /// The name under which it was attached.
    pub backend: BackendName,
    /// The last written mark.
    pub mark: String,
    /// Sequence number of the mark; 0 if it was written before marks had one.
    #[serde(default)]
    pub sequence: u64,
    /// True if a process with another catalog of this cluster found this mark unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contested: bool,
}

impl Identity {
    /// Encodes the identity as stored JSON.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec_pretty(self).expect("strings and numbers always encode"))
    }

    /// Decodes an identity object; an unreadable one is `Unknown`, because it proves nothing.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes)
            .map_err(|error| Error::Unknown(format!("unreadable identity object {IDENTITY_KEY}: {error}")))
    }
}

/// The marks of a backend in the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The catalog's own cluster.
    pub cluster: String,
    /// The backend in question.
    pub backend: BackendName,
    /// The last confirmed mark; `None` if there was none.
    pub current: Option<String>,
    /// Sequence number of the current mark; 0 if it was written before marks had one.
    pub sequence: u64,
    /// The planned mark: not written yet, or written and not confirmed.
    pub next: Option<String>,
    /// Older marks, up to [`MARKS_KEPT`].
    pub last: Vec<String>,
}

impl Known {
    /// True if this catalog wrote the mark before the current one. Marks older than the kept ones
    /// are recognised by their sequence number.
    fn wrote_earlier(&self, found: &Identity) -> bool {
        self.last.contains(&found.mark) || found.sequence.saturating_add(MARKS_KEPT) < self.sequence
    }
}

/// Identity data read from a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundIdentity {
    /// The identity object; `None` if none is stored.
    pub identity: Option<Identity>,
    /// True if the object of the catalog's current mark is stored. It is only read if the
    /// identity object has an older mark.
    pub has_current_mark: bool,
}

/// Result of comparing catalog and backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityVerdict {
    /// The backend has no identity and the catalog never confirmed one: a new backend.
    Fresh,
    /// The backend has the confirmed mark.
    Fits,
    /// The backend has the planned mark, which must be confirmed.
    FitsNext,
    /// The identity object has an older mark, but the object of the current mark exists: a late
    /// write replaced the identity object, and the mark must be raised again.
    Overwritten,
    /// The backend has an older mark and no object of the current one: a clone or a copy restored
    /// from an earlier time.
    StaleClone,
    /// The backend has a mark that the catalog does not know: the catalog was restored.
    RestoredCatalog,
    /// Another catalog of this cluster did not know the mark on the backend.
    Contested,
    /// The backend belongs to another cluster.
    WrongCluster,
    /// The backend belongs to this cluster under another name.
    WrongBackend,
    /// The catalog confirmed an identity and the backend has none: an unmounted disk or an emptied bucket.
    Missing,
}

impl IdentityVerdict {
    /// True if writes and deletes are allowed.
    #[must_use]
    pub const fn fits(self) -> bool {
        match self {
            Self::Fresh | Self::Fits | Self::FitsNext | Self::Overwritten => true,
            Self::StaleClone
            | Self::RestoredCatalog
            | Self::Contested
            | Self::WrongCluster
            | Self::WrongBackend
            | Self::Missing => false,
        }
    }

    /// Explanation for the operator.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Fresh => "nothing was ever written here",
            Self::Fits | Self::FitsNext => "the identity matches",
            Self::Overwritten => "a late write replaced the identity object",
            Self::StaleClone => "the backend has an older mark than the catalog wrote: it may be a stale clone",
            Self::RestoredCatalog => {
                "the backend has a mark that the catalog does not know: the catalog may be a restored backup"
            }
            Self::Contested => "two catalogs of this cluster use the backend: the mark is contested",
            Self::WrongCluster => "the backend belongs to another cluster",
            Self::WrongBackend => "the backend was attached under another name",
            Self::Missing => {
                "the identity object is missing: the store is not mounted, is empty, or is the wrong folder or bucket"
            }
        }
    }
}

/// Compares the marks in the catalog with the identity on the backend.
#[must_use]
pub fn judge(known: &Known, found: &FoundIdentity) -> IdentityVerdict {
    let Some(identity) = &found.identity else {
        // An unconfirmed first mark may never have been written; only a confirmed one can be missing.
        return if known.current.is_none() { IdentityVerdict::Fresh } else { IdentityVerdict::Missing };
    };
    if identity.cluster != known.cluster {
        IdentityVerdict::WrongCluster
    } else if identity.backend != known.backend {
        IdentityVerdict::WrongBackend
    } else if identity.contested {
        IdentityVerdict::Contested
    } else if known.current.as_ref() == Some(&identity.mark) {
        IdentityVerdict::Fits
    } else if known.next.as_ref() == Some(&identity.mark) {
        IdentityVerdict::FitsNext
    } else if !known.wrote_earlier(identity) {
        IdentityVerdict::RestoredCatalog
    } else if found.has_current_mark {
        IdentityVerdict::Overwritten
    } else {
        IdentityVerdict::StaleClone
    }
}

#[cfg(test)]
mod tests {
    use super::{FoundIdentity, Identity, IdentityVerdict, Known, judge};
    use s3o_model::names::BackendName;

    fn backend(name: &str) -> BackendName {
        name.parse().expect("valid")
    }

    fn known() -> Known {
        Known {
            cluster: "ours".to_owned(),
            backend: backend("disk"),
            current: Some("m2".to_owned()),
            sequence: 2,
            next: Some("m3".to_owned()),
            last: vec!["m1".to_owned()],
        }
    }

    fn identity(mark: &str, sequence: u64) -> Identity {
        Identity {
            cluster: "ours".to_owned(),
            backend: backend("disk"),
            mark: mark.to_owned(),
            sequence,
            contested: false,
        }
    }

    fn found(identity: Identity) -> FoundIdentity {
        FoundIdentity { identity: Some(identity), has_current_mark: false }
    }

    #[test]
    fn known_marks_fit_and_unknown_ones_mean_a_restored_catalog() {
        assert_eq!(judge(&known(), &found(identity("m2", 2))), IdentityVerdict::Fits);
        assert_eq!(judge(&known(), &found(identity("m3", 3))), IdentityVerdict::FitsNext);
        assert_eq!(judge(&known(), &found(identity("m9", 9))), IdentityVerdict::RestoredCatalog);
        assert_eq!(judge(&known(), &found(identity("m0", 1))), IdentityVerdict::RestoredCatalog);
    }

    #[test]
    fn older_mark_is_a_stale_clone_unless_the_current_mark_object_exists() {
        let older = found(identity("m1", 1));
        assert_eq!(judge(&known(), &older), IdentityVerdict::StaleClone);
        assert_eq!(judge(&known(), &FoundIdentity { has_current_mark: true, ..older }), IdentityVerdict::Overwritten);
        // So old that the catalog no longer stores the mark.
        let late = Known { sequence: 40, ..known() };
        assert_eq!(judge(&late, &found(identity("m0", 3))), IdentityVerdict::StaleClone);
        assert_eq!(judge(&late, &found(identity("m0", 30))), IdentityVerdict::RestoredCatalog);
        assert!(!IdentityVerdict::StaleClone.fits() && IdentityVerdict::Overwritten.fits());
    }

    #[test]
    fn mark_without_sequence_number_fits() {
        let old = Known { sequence: 0, next: None, ..known() };
        let stored = br#"{"cluster": "ours", "backend": "disk", "mark": "m2"}"#;
        let carried = Identity::decode(stored).expect("valid");
        assert_eq!((carried.sequence, carried.contested), (0, false));
        assert_eq!(judge(&old, &found(carried)), IdentityVerdict::Fits);
    }

    #[test]
    fn contested_mark_fits_no_catalog() {
        let contested = Identity { contested: true, ..identity("m2", 2) };
        assert_eq!(judge(&known(), &found(contested)), IdentityVerdict::Contested);
        assert!(!IdentityVerdict::Contested.fits());
    }

    #[test]
    fn missing_identity_is_fresh_only_if_no_mark_was_confirmed() {
        let nothing = FoundIdentity { identity: None, has_current_mark: false };
        let never = Known { current: None, last: Vec::new(), ..known() };
        assert_eq!(judge(&never, &nothing), IdentityVerdict::Fresh);
        assert_eq!(judge(&known(), &nothing), IdentityVerdict::Missing);
    }

    #[test]
    fn first_mark_written_but_unconfirmed_is_recognised() {
        let first = Known { current: None, last: Vec::new(), ..known() };
        assert_eq!(judge(&first, &found(identity("m3", 1))), IdentityVerdict::FitsNext);
    }

    #[test]
    fn wrong_cluster_and_wrong_backend_are_distinguished() {
        let other_cluster = Identity { cluster: "theirs".to_owned(), ..identity("m2", 2) };
        assert_eq!(judge(&known(), &found(other_cluster)), IdentityVerdict::WrongCluster);
        let other_backend = Identity { backend: backend("tape"), ..identity("m2", 2) };
        assert_eq!(judge(&known(), &found(other_backend)), IdentityVerdict::WrongBackend);
        assert!(!IdentityVerdict::WrongCluster.fits() && IdentityVerdict::FitsNext.fits());
    }

    #[test]
    fn identity_object_decodes_and_garbage_is_an_error() {
        let identity = identity("m2", 2);
        assert_eq!(Identity::decode(&identity.encode()).expect("valid"), identity);
        assert!(Identity::decode(b"{}").is_err());
    }
}
