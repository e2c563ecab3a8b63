//! Compares the marks in the catalog with the identity object on a backend, and raises marks.

use std::time::Duration;

use s3o_backend::identity::{
    FoundIdentity, IDENTITY_KEY, Identity as Carried, IdentityVerdict, Known, create_mark, fingerprint, judge,
    read_found, read_identity, remove_marks,
};
use s3o_backend::{Error as BackendError, SharedBackend};
use s3o_catalog::{Error as CatalogError, KnownBackend, MARK_LEASE, PlannedMark, Verdict as CatalogVerdict};
use s3o_model::names::BackendName;

use super::IdentityWorker;
use crate::Error;

/// Number of attempts to raise a mark while other instances write theirs.
const WRITES_MAX: usize = 6;
/// How long an instance writes a mark that it planned: less than the time for which a removal waits for it.
const WRITE_FOR: Duration = MARK_LEASE.saturating_sub(Duration::from_secs(10));
/// Number of attempts to read catalog and backend without a change in between.
const READS_MAX: usize = 5;

/// Result of a comparison.
pub(super) struct Compared {
    pub(super) verdict: IdentityVerdict,
    pub(super) found: Option<Carried>,
    pub(super) known: KnownBackend,
}

/// How the backend differs from what the catalog expects.
#[derive(Debug, Clone)]
pub(super) struct Mismatch {
    pub(super) reason: String,
    pub(super) found: Option<Carried>,
    /// True if the catalog does not know the mark that was found.
    pub(super) is_unknown_mark: bool,
    /// Key of the newest object if it is missing.
    pub(super) missing: Option<String>,
}

impl Mismatch {
    /// Hash of what was found.
    pub(super) fn hash(&self) -> String {
        fingerprint(self.found.as_ref(), self.missing.as_deref())
    }
}

impl Compared {
    pub(super) fn mismatch(&self) -> Mismatch {
        Mismatch {
            reason: self.verdict.reason().to_owned(),
            found: self.found.clone(),
            is_unknown_mark: self.verdict == IdentityVerdict::RestoredCatalog,
            missing: None,
        }
    }
}

impl IdentityWorker {
    /// Compares catalog and backend; confirms a mark that was written but not confirmed.
    pub(super) async fn compare(&self, backend: &SharedBackend) -> Result<Compared, Error> {
        let found = read_identity(backend.as_ref()).await.map_err(|source| Error::of(backend, source))?;
        self.compare_found(backend, found).await
    }

    /// The same, for an identity object that was just read.
    pub(super) async fn compare_found(
        &self,
        backend: &SharedBackend,
        found: Option<Carried>,
    ) -> Result<Compared, Error> {
        let name = backend.name();
        let compared = self.compare_marks(backend, found).await?;
        if let (IdentityVerdict::FitsNext, Some(found)) = (compared.verdict, &compared.found) {
            self.confirm(name, &found.mark).await?;
        }
        let now = self.boot();
        self.state(name, |state| state.checked = Some(now));
        Ok(compared)
    }

    /// A backend that carries the current or the next mark after the catalog was read fits. Anything else counts only
    /// if the catalog's marks were the same before and after the backend was read.
    async fn compare_marks(&self, backend: &SharedBackend, found: Option<Carried>) -> Result<Compared, Error> {
        let name = backend.name();
        let mut before = self.parts.identities.known_backend(name).await?;
        let verdict =
            judge(&self.known(name, &before), &FoundIdentity { identity: found.clone(), has_current_mark: false });
        if matches!(verdict, IdentityVerdict::Fresh | IdentityVerdict::Fits | IdentityVerdict::FitsNext) {
            return Ok(Compared { verdict, found, known: before });
        }
        for _ in 0..READS_MAX {
            let known = self.known(name, &before);
            let found = read_found(backend.as_ref(), &known).await.map_err(|source| Error::of(backend, source))?;
            let after = self.parts.identities.known_backend(name).await?;
            if after.has_marks_of(&before) {
                return Ok(Compared { verdict: judge(&known, &found), found: found.identity, known: after });
            }
            before = after;
        }
        Err(CatalogError::Guard(CatalogVerdict::RunAgain).into())
    }

    fn known(&self, name: &BackendName, known: &KnownBackend) -> Known {
        Known {
            cluster: self.parts.cluster.clone(),
            backend: name.clone(),
            current: known.mark.clone(),
            sequence: known.mark_sequence,
            next: known.next_mark.clone(),
            last: known.past_marks.clone(),
        }
    }

    /// Raises the mark of a backend. It is complete when a mark that was planned after it began is confirmed: a copy of
    /// the catalog may know one that was open before.
    pub async fn raise(&self, backend: &SharedBackend) -> Result<(), Error> {
        let name = backend.name();
        let mut fresh = self.fresh_mark();
        for _ in 0..WRITES_MAX {
            let planned = self.parts.identities.plan_mark(name, &fresh).await?;
            let was_planned_here = planned.mark == fresh;
            // An instance that was suspended before the write has overwritten newer marks with an old one, perhaps
            // one that the catalog no longer stores. It raises the mark once more.
            let written = tokio::time::timeout(WRITE_FOR, self.write_mark(backend, &planned)).await;
            let late = |_| Error::of(backend, BackendError::Unknown("the mark was not written in time".to_owned()));
            let confirmed = written.map_err(late)??;
            if confirmed && was_planned_here {
                self.remove_past_marks(backend).await;
                return Ok(());
            }
            if was_planned_here {
                fresh = self.fresh_mark();
            }
        }
        Err(CatalogError::Guard(CatalogVerdict::RunAgain).into())
    }

    pub(super) fn fresh_mark(&self) -> String {
        self.parts.ids.fresh().as_simple().to_string()
    }

    /// Writes a planned mark and confirms it; after a crash in between, the mark fits as the next one. True if the mark
    /// was still the planned one.
    async fn write_mark(&self, backend: &SharedBackend, planned: &PlannedMark) -> Result<bool, Error> {
        let carried = self.carried(backend.name(), planned);
        let refuse = |source| Error::of(backend, source);
        create_mark(backend.as_ref(), &carried).await.map_err(refuse)?;
        let found = read_identity(backend.as_ref()).await.map_err(refuse)?;
        if found.is_some_and(|found| found.contested) {
            return Err(refuse(BackendError::Refused(IdentityVerdict::Contested.reason().to_owned())));
        }
        self.write_identity(backend, &carried).await
    }

    /// Overwrites the identity object with the mark of an accept.
    pub(super) async fn write_accepted(&self, backend: &SharedBackend, planned: &PlannedMark) -> Result<bool, Error> {
        let carried = self.carried(backend.name(), planned);
        create_mark(backend.as_ref(), &carried).await.map_err(|source| Error::of(backend, source))?;
        self.write_identity(backend, &carried).await
    }

    fn carried(&self, name: &BackendName, planned: &PlannedMark) -> Carried {
        Carried {
            cluster: self.parts.cluster.clone(),
            backend: name.clone(),
            mark: planned.mark.clone(),
            sequence: planned.sequence,
            contested: false,
        }
    }

    async fn write_identity(&self, backend: &SharedBackend, carried: &Carried) -> Result<bool, Error> {
        backend.write_own(IDENTITY_KEY, carried.encode()).await.map_err(|source| Error::of(backend, source))?;
        self.confirm(backend.name(), &carried.mark).await
    }

    /// True if this call confirmed the mark, false if another instance did.
    async fn confirm(&self, name: &BackendName, mark: &str) -> Result<bool, Error> {
        match self.parts.identities.confirm_mark(name, mark).await {
            Ok(()) => {
                self.state(name, |state| state.has_confirmed = true);
                Ok(true)
            }
            Err(error) if error.verdict() == Some(CatalogVerdict::RunAgain) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the objects of past marks; the next raise retries those that fail.
    async fn remove_past_marks(&self, backend: &SharedBackend) {
        let name = backend.name();
        let removed = match self.parts.identities.known_backend(name).await {
            Ok(known) => remove_marks(backend.as_ref(), &known.past_marks).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = removed {
            tracing::info!(backend = %name, error, "cannot delete objects of past marks, retrying at the next raise");
        }
    }
}
