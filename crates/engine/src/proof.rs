//! Looking at copies: before a write relies on one, and after one could not be read.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use s3o_backend::fleet::Fleet;
use s3o_backend::identity::{Known, judge, read_found};
use s3o_backend::{Error as BackendError, Probe, SharedBackend};
use s3o_catalog::{Catalog, CopyProver, Identities as _};
use s3o_model::content::Location;
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;
use s3o_model::proof::Proof;
use s3o_model::verify::Seen;

use crate::Engine;

/// Looks at copies where they lie.
pub(crate) struct Looks {
    pub(crate) fleet: Arc<Fleet>,
    /// Weak, since the catalog is who asks.
    pub(crate) catalog: Weak<Catalog>,
}

#[async_trait]
impl CopyProver for Looks {
    async fn prove(&self, copy: &Location, size_bytes: u64) -> Proof {
        let Some(backend) = self.trusted(&copy.backend) else { return Proof::Unclear };
        let seen = match backend.probe(&copy.physical_key).await {
            Probe::Present(found) => Seen::Present(found.size_bytes),
            Probe::Absent => Seen::Absent,
            Probe::Unknown(why) => Seen::Unknown(why),
        };
        match Proof::of_copy(size_bytes, &seen) {
            // What the wrong disk or bucket does not have may be on the right one.
            Proof::Bad if !self.is_itself(backend).await => Proof::Unclear,
            proof => proof,
        }
    }
}

impl Looks {
    /// A backend that is configured and not frozen.
    fn trusted(&self, name: &BackendName) -> Option<&SharedBackend> {
        let standing = self.fleet.standing(name)?;
        self.fleet.get(name).filter(|_| standing.frozen.is_none())
    }

    /// Whether a backend carries a mark that the catalog wrote there, at this moment.
    async fn is_itself(&self, backend: &SharedBackend) -> bool {
        let Some(catalog) = self.catalog.upgrade() else { return false };
        let Ok(before) = catalog.known_backend(backend.name()).await else { return false };
        let mut known = Known {
            cluster: String::new(),
            backend: backend.name().clone(),
            current: before.mark.clone(),
            sequence: before.mark_sequence,
            next: before.next_mark.clone(),
            last: before.past_marks.clone(),
        };
        let Ok(found) = read_found(backend.as_ref(), &known).await else { return false };
        // No other cluster writes a mark of this one.
        known.cluster = found.identity.as_ref().map(|found| found.cluster.clone()).unwrap_or_default();
        let Ok(after) = catalog.known_backend(backend.name()).await else { return false };
        after.has_marks_of(&before) && judge(&known, &found).fits()
    }
}

impl Engine {
    /// Has a copy of so many bytes looked at that could not be opened, unless its backend is just away.
    pub(crate) async fn doubt(&self, content: ContentId, copy: &Location, size_bytes: u64, error: &BackendError) {
        let telling = matches!(error, BackendError::NotFound | BackendError::Refused(_));
        if telling && self.looks.prove(copy, size_bytes).await == Proof::Bad {
            self.suspect(content, copy).await;
        }
    }

    /// Notes that a copy is not what was written, so that the next write of the same content takes its place. What was
    /// deleted or replaced meanwhile is left alone.
    pub(crate) async fn suspect(&self, content: ContentId, copy: &Location) {
        let Location { backend, physical_key } = copy;
        match self.copies.suspect(content, copy).await {
            Ok(true) => tracing::warn!(%content, %backend, physical_key, "copy is suspect from now on"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%content, %backend, physical_key, %error, "bad copy was not noted"),
        }
    }
}
