//! The identity object: how a backend says whose it is, and what a mismatch means.
//!
//! Each backend carries the cluster, its own name and a random mark that only ever moves forward.
//! A catalog that does not know the mark it finds was restored from before that mark; a backend
//! that carries another cluster is the wrong disk or bucket. Nothing here waits or writes: it
//! only decides.

use bytes::Bytes;
use s3o_model::names::BackendName;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Where the identity object lies on every backend.
pub const IDENTITY_KEY: &str = ".s3o/identity.json";

/// How many old marks a catalog keeps for each backend.
pub const MARKS_KEPT: usize = 16;

/// What a backend says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The cluster that attached the backend.
    pub cluster: String,
    /// The name under which it was attached.
    pub backend: BackendName,
    /// The mark that was written last.
    pub mark: String,
}

impl Identity {
    /// The identity in the form in which it is stored.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        Bytes::from(serde_json::to_vec_pretty(self).expect("three strings always encode"))
    }

    /// Reads an identity object; one that cannot be read proves nothing.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(|error| Error::Unknown(format!("unreadable identity object: {error}")))
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
    /// The mark that is about to be written, or was and is not confirmed.
    pub next: Option<String>,
    /// Older marks, up to [`MARKS_KEPT`].
    pub last: Vec<String>,
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
    /// The backend carries an older mark of ours: a store that reads late, or a disk that was
    /// set back. The catalog knows more than the backend, so nothing can be taken for an orphan
    /// that is not one.
    Older,
    /// The backend carries a mark that the catalog does not know: the catalog was restored.
    RestoredCatalog,
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
            Self::Fresh | Self::Fits | Self::FitsNext | Self::Older => true,
            Self::RestoredCatalog | Self::WrongCluster | Self::WrongBackend | Self::Missing => false,
        }
    }

    /// Why a backend with this verdict is frozen, in words for people.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Fresh => "nothing was ever written here",
            Self::Fits | Self::FitsNext => "the identity fits",
            Self::Older => "the backend carries an older mark than the catalog wrote",
            Self::RestoredCatalog => "the backend carries a mark that the catalog does not know: was it restored?",
            Self::WrongCluster => "the backend belongs to another cluster",
            Self::WrongBackend => "the backend was attached under another name",
            Self::Missing => "the identity object is gone: unmounted, emptied or the wrong place",
        }
    }
}

/// Compares what the catalog knows with what the backend carries.
#[must_use]
pub fn judge(known: &Known, found: Option<&Identity>) -> Verdict {
    let Some(found) = found else {
        // An unconfirmed first mark may never have arrived; only a confirmed one can go missing.
        return if known.current.is_none() { Verdict::Fresh } else { Verdict::Missing };
    };
    if found.cluster != known.cluster {
        Verdict::WrongCluster
    } else if found.backend != known.backend {
        Verdict::WrongBackend
    } else if known.current.as_ref() == Some(&found.mark) {
        Verdict::Fits
    } else if known.next.as_ref() == Some(&found.mark) {
        Verdict::FitsNext
    } else if known.last.contains(&found.mark) {
        Verdict::Older
    } else {
        Verdict::RestoredCatalog
    }
}

#[cfg(test)]
mod tests {
    use super::{Identity, Known, Verdict, judge};
    use s3o_model::names::BackendName;

    fn backend(name: &str) -> BackendName {
        name.parse().expect("valid")
    }

    fn known() -> Known {
        Known {
            cluster: "ours".to_owned(),
            backend: backend("disk"),
            current: Some("m2".to_owned()),
            next: Some("m3".to_owned()),
            last: vec!["m1".to_owned()],
        }
    }

    fn found(mark: &str) -> Identity {
        Identity { cluster: "ours".to_owned(), backend: backend("disk"), mark: mark.to_owned() }
    }

    #[test]
    fn known_marks_fit_and_unknown_ones_betray_a_restored_catalog() {
        assert_eq!(judge(&known(), Some(&found("m2"))), Verdict::Fits);
        assert_eq!(judge(&known(), Some(&found("m3"))), Verdict::FitsNext);
        assert_eq!(judge(&known(), Some(&found("m1"))), Verdict::Older);
        assert_eq!(judge(&known(), Some(&found("m9"))), Verdict::RestoredCatalog);
    }

    #[test]
    fn nothing_there_is_fresh_only_if_no_mark_was_ever_confirmed() {
        let never = Known { current: None, last: Vec::new(), ..known() };
        assert_eq!(judge(&never, None), Verdict::Fresh);
        assert_eq!(judge(&known(), None), Verdict::Missing);
    }

    #[test]
    fn a_first_mark_that_arrived_unconfirmed_is_recognised() {
        let first = Known { current: None, last: Vec::new(), ..known() };
        assert_eq!(judge(&first, Some(&found("m3"))), Verdict::FitsNext);
    }

    #[test]
    fn strangers_are_told_apart() {
        let other_cluster = Identity { cluster: "theirs".to_owned(), ..found("m2") };
        assert_eq!(judge(&known(), Some(&other_cluster)), Verdict::WrongCluster);
        let other_backend = Identity { backend: backend("tape"), ..found("m2") };
        assert_eq!(judge(&known(), Some(&other_backend)), Verdict::WrongBackend);
        assert!(!Verdict::WrongCluster.fits() && Verdict::FitsNext.fits());
    }

    #[test]
    fn the_object_reads_back_and_garbage_proves_nothing() {
        let identity = found("m2");
        assert_eq!(Identity::decode(&identity.encode()).expect("valid"), identity);
        assert!(Identity::decode(b"{}").is_err());
    }
}
