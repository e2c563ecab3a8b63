//! The identity object: how a backend says whose it is, and what a mismatch means.
//!
//! Each backend stores the cluster, its own name and a random mark with a sequence number that only
//! ever grows. Each mark also has a write-once object of its own, so that an identity object that was
//! overwritten late can be distinguished from a disk that was set back. Nothing in this file waits or
//! writes: it only decides.

use bytes::Bytes;
use s3o_model::names::BackendName;
use serde::{Deserialize, Serialize};

use crate::Error;

mod marks;

pub use marks::{create_mark, fingerprint, mark_key, read_found, read_identity, remove_marks};

/// Where the identity object lies on every backend.
pub const IDENTITY_KEY: &str = ".s3o/identity.json";

/// Where the write-once objects of the marks are stored.
pub const MARKS_PREFIX: &str = ".s3o/marks/";

/// How many old marks a catalog keeps for each backend.
pub const MARKS_KEPT: u64 = 16;

/// What a backend says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The cluster that attached the backend.
    pub cluster: String,
    /// The name under which it was attached.
    pub backend: BackendName,
    /// The mark that was written last.
    pub mark: String,
    /// The sequence number of the mark; 0 where it was written before marks had one.
    #[serde(default)]
    pub sequence: u64,
    /// Whether a process with another catalog of this cluster found this mark and did not know it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contested: bool,
}

impl Identity {
    /// The identity in the form in which it is stored.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec_pretty(self).expect("strings and numbers always encode"))
    }

    /// Reads an identity object; one that cannot be read proves nothing.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes)
            .map_err(|error| Error::Unknown(format!("unreadable identity object {IDENTITY_KEY}: {error}")))
    }
}

/// What the catalog knows about a backend's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The catalog's own cluster.
    pub cluster: String,
    /// The backend in question.
    pub backend: BackendName,
    /// The mark that was confirmed last; `None` when none ever was.
    pub current: Option<String>,
    /// The sequence number of the current mark; 0 where it was written before marks had one.
    pub sequence: u64,
    /// The mark that is about to be written, or was and is not confirmed.
    pub next: Option<String>,
    /// Older marks, up to [`MARKS_KEPT`].
    pub last: Vec<String>,
}

impl Known {
    /// Whether this catalog wrote the mark before the current one. Marks older than those that are
    /// kept are recognised by their sequence number.
    fn wrote_earlier(&self, found: &Identity) -> bool {
        self.last.contains(&found.mark) || found.sequence.saturating_add(MARKS_KEPT) < self.sequence
    }
}

/// What was read from a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The identity object; `None` where none is stored.
    pub identity: Option<Identity>,
    /// Whether the object of the catalog's current mark is stored. It is only read where the
    /// identity object carries an older mark.
    pub has_current_mark: bool,
}

/// What the comparison of catalog and backend means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is there and the catalog never wrote anything: a new backend.
    Fresh,
    /// The backend carries the confirmed mark.
    Fits,
    /// The backend carries the mark that is not yet confirmed: confirm it.
    FitsNext,
    /// The identity object carries an older mark, and the object of the current mark is there: a
    /// late write replaced the identity object. Raise the mark again.
    Overwritten,
    /// The backend carries an older mark and no object of the current one: a clone or a restored
    /// copy from an earlier time.
    StaleClone,
    /// The backend carries a mark that the catalog does not know: the catalog was restored.
    RestoredCatalog,
    /// Another catalog of this cluster did not know the mark that the backend carries.
    Contested,
    /// The backend belongs to another cluster.
    WrongCluster,
    /// The backend belongs to this cluster under another name.
    WrongBackend,
    /// The catalog wrote an identity and nothing is there: an unmounted disk or an emptied bucket.
    Missing,
}

impl Verdict {
    /// Whether writes and destructive work may go on.
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

    /// Why a backend with this verdict is frozen, in words for people.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Fresh => "nothing was ever written here",
            Self::Fits | Self::FitsNext => "the identity fits",
            Self::Overwritten => "a late write replaced the identity object",
            Self::StaleClone => "the backend carries an older mark than the catalog wrote: is it a stale clone?",
            Self::RestoredCatalog => "the backend carries a mark that the catalog does not know: was it restored?",
            Self::Contested => "two catalogs of this cluster use the backend: the mark is contested",
            Self::WrongCluster => "the backend belongs to another cluster",
            Self::WrongBackend => "the backend was attached under another name",
            Self::Missing => "the identity object is gone: unmounted, emptied or the wrong place",
        }
    }
}

/// Compares what the catalog knows with what the backend carries.
#[must_use]
pub fn judge(known: &Known, found: &Found) -> Verdict {
    let Some(identity) = &found.identity else {
        // An unconfirmed first mark may never have arrived; only a confirmed one can go missing.
        return if known.current.is_none() { Verdict::Fresh } else { Verdict::Missing };
    };
    if identity.cluster != known.cluster {
        Verdict::WrongCluster
    } else if identity.backend != known.backend {
        Verdict::WrongBackend
    } else if identity.contested {
        Verdict::Contested
    } else if known.current.as_ref() == Some(&identity.mark) {
        Verdict::Fits
    } else if known.next.as_ref() == Some(&identity.mark) {
        Verdict::FitsNext
    } else if !known.wrote_earlier(identity) {
        Verdict::RestoredCatalog
    } else if found.has_current_mark {
        Verdict::Overwritten
    } else {
        Verdict::StaleClone
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, Identity, Known, Verdict, judge};
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

    fn found(identity: Identity) -> Found {
        Found { identity: Some(identity), has_current_mark: false }
    }

    #[test]
    fn known_marks_fit_and_unknown_ones_betray_a_restored_catalog() {
        assert_eq!(judge(&known(), &found(identity("m2", 2))), Verdict::Fits);
        assert_eq!(judge(&known(), &found(identity("m3", 3))), Verdict::FitsNext);
        assert_eq!(judge(&known(), &found(identity("m9", 9))), Verdict::RestoredCatalog);
        assert_eq!(judge(&known(), &found(identity("m0", 1))), Verdict::RestoredCatalog);
    }

    #[test]
    fn an_older_mark_is_a_stale_clone_unless_the_object_of_the_current_one_is_there() {
        let older = found(identity("m1", 1));
        assert_eq!(judge(&known(), &older), Verdict::StaleClone);
        assert_eq!(judge(&known(), &Found { has_current_mark: true, ..older }), Verdict::Overwritten);
        // So old that the catalog has forgotten the mark itself.
        let late = Known { sequence: 40, ..known() };
        assert_eq!(judge(&late, &found(identity("m0", 3))), Verdict::StaleClone);
        assert_eq!(judge(&late, &found(identity("m0", 30))), Verdict::RestoredCatalog);
        assert!(!Verdict::StaleClone.fits() && Verdict::Overwritten.fits());
    }

    #[test]
    fn a_mark_from_before_sequence_numbers_fits() {
        let old = Known { sequence: 0, next: None, ..known() };
        let stored = br#"{"cluster": "ours", "backend": "disk", "mark": "m2"}"#;
        let carried = Identity::decode(stored).expect("valid");
        assert_eq!((carried.sequence, carried.contested), (0, false));
        assert_eq!(judge(&old, &found(carried)), Verdict::Fits);
    }

    #[test]
    fn a_contested_mark_fits_no_catalog() {
        let contested = Identity { contested: true, ..identity("m2", 2) };
        assert_eq!(judge(&known(), &found(contested)), Verdict::Contested);
        assert!(!Verdict::Contested.fits());
    }

    #[test]
    fn nothing_there_is_fresh_only_if_no_mark_was_ever_confirmed() {
        let nothing = Found { identity: None, has_current_mark: false };
        let never = Known { current: None, last: Vec::new(), ..known() };
        assert_eq!(judge(&never, &nothing), Verdict::Fresh);
        assert_eq!(judge(&known(), &nothing), Verdict::Missing);
    }

    #[test]
    fn a_first_mark_that_arrived_unconfirmed_is_recognised() {
        let first = Known { current: None, last: Vec::new(), ..known() };
        assert_eq!(judge(&first, &found(identity("m3", 1))), Verdict::FitsNext);
    }

    #[test]
    fn strangers_are_told_apart() {
        let other_cluster = Identity { cluster: "theirs".to_owned(), ..identity("m2", 2) };
        assert_eq!(judge(&known(), &found(other_cluster)), Verdict::WrongCluster);
        let other_backend = Identity { backend: backend("tape"), ..identity("m2", 2) };
        assert_eq!(judge(&known(), &found(other_backend)), Verdict::WrongBackend);
        assert!(!Verdict::WrongCluster.fits() && Verdict::FitsNext.fits());
    }

    #[test]
    fn the_object_reads_back_and_garbage_proves_nothing() {
        let identity = identity("m2", 2);
        assert_eq!(Identity::decode(&identity.encode()).expect("valid"), identity);
        assert!(Identity::decode(b"{}").is_err());
    }
}
