//! Checks copies on their backends: before a write relies on one, and after a read of one failed.

use std::sync::Arc;

use s3o_backend::fleet::Fleet;
use s3o_backend::identity::{Known, judge, read_found};
use s3o_backend::{Error as BackendError, Probe, SharedBackend};
use s3o_catalog::{Catalog, Error as CatalogError, KnownContent};
use s3o_model::content::Location;
use s3o_model::copy_check::CopyState;
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;
use s3o_model::usage::UsagePurpose;
use s3o_model::verify::Seen;

use crate::Engine;

/// Checks copies on their backends. Clones share the catalog and the fleet.
#[derive(Clone)]
pub(crate) struct CopyChecker {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) fleet: Arc<Fleet>,
}

impl CopyChecker {
    /// Probes the copies until `needed` of them are good, and marks bad copies as suspect.
    pub(crate) async fn check_content(
        &self,
        known: &KnownContent,
        size_bytes: u64,
        needed: usize,
    ) -> Result<CopyState, CatalogError> {
        let mut states = Vec::with_capacity(known.copies.len());
        for copy in &known.copies {
            let state = self.check_copy(copy, size_bytes).await;
            if state == CopyState::Bad {
                self.catalog.suspect(known.content, copy).await?;
            }
            states.push(state);
            if CopyState::of_content(&states, needed) == CopyState::Good {
                break;
            }
        }
        Ok(CopyState::of_content(&states, needed))
    }

    /// Beyond a usage limit nothing is probed, so that nothing is known.
    pub(crate) async fn check_copy(&self, copy: &Location, size_bytes: u64) -> CopyState {
        if self.fleet.reached_limit(&copy.backend, UsagePurpose::Read).is_some() {
            return CopyState::Unclear;
        }
        let Some(backend) = self.trusted(&copy.backend) else { return CopyState::Unclear };
        let seen = match backend.probe(copy.key_version()).await {
            Probe::Present(found) => Seen::Present(found.size_bytes),
            Probe::Absent => Seen::Absent,
            Probe::Unknown(why) => Seen::Unknown(why),
        };
        match CopyState::of_copy(size_bytes, &seen) {
            // If this is the wrong disk or bucket, the bytes may be on the right one.
            CopyState::Bad if !self.has_known_mark(backend).await => CopyState::Unclear,
            state => state,
        }
    }

    /// True if the right store has no bytes of a copy.
    pub(crate) async fn is_proven_absent(&self, copy: &Location) -> bool {
        if self.fleet.reached_limit(&copy.backend, UsagePurpose::Read).is_some() {
            return false;
        }
        let Some(backend) = self.trusted(&copy.backend) else { return false };
        backend.probe(copy.key_version()).await == Probe::Absent && self.has_known_mark(backend).await
    }

    /// True if a backend is configured, not frozen, and has a mark that the catalog wrote there.
    pub(crate) async fn has_right_identity(&self, name: &BackendName) -> bool {
        match self.trusted(name) {
            Some(backend) => self.has_known_mark(backend).await,
            None => false,
        }
    }

    /// A backend that is configured and not frozen.
    fn trusted(&self, name: &BackendName) -> Option<&SharedBackend> {
        let state = self.fleet.state(name)?;
        self.fleet.get(name).filter(|_| state.frozen.is_none())
    }

    /// True if the backend has, at this moment, a mark that the catalog wrote there.
    async fn has_known_mark(&self, backend: &SharedBackend) -> bool {
        let Ok(before) = self.catalog.known_backend(backend.name()).await else { return false };
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
        let Ok(after) = self.catalog.known_backend(backend.name()).await else { return false };
        after.has_marks_of(&before) && judge(&known, &found).fits()
    }
}

impl Engine {
    /// Checks a copy after a failed read, unless the error says that its backend is unreachable.
    pub(crate) async fn recheck_copy(
        &self,
        content: ContentId,
        copy: &Location,
        size_bytes: u64,
        error: &BackendError,
    ) {
        let is_answer = matches!(error, BackendError::NotFound | BackendError::Refused(_));
        if is_answer && self.sharing.checker.check_copy(copy, size_bytes).await == CopyState::Bad {
            self.suspect(content, copy).await;
        }
    }

    /// Marks a copy as suspect, so that the next write of the same content replaces it. A copy that was deleted or
    /// replaced meanwhile is left alone.
    pub(crate) async fn suspect(&self, content: ContentId, copy: &Location) {
        let Location { backend, physical_key, .. } = copy;
        match self.catalog.suspect(content, copy).await {
            Ok(true) => tracing::warn!(%content, %backend, physical_key, "copy marked as suspect"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%content, %backend, physical_key, %error, "cannot mark bad copy as suspect"),
        }
    }
}
