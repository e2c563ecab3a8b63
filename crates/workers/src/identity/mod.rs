//! Identity of the backends: marks that reveal a wrong disk, a stale clone, a wrong bucket or a
//! restored catalog before anything is written or deleted.
//!
//! Each instance decides for itself. An instance that finds an identity that does not fit stops writing
//! there and records what it found; while such a record is live, no instance deletes there.

mod accept;
mod attach;
mod marks;
mod records;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use s3o_backend::SharedBackend;
use s3o_backend::fleet::{Fleet, NOT_REACHED};
use s3o_backend::identity::{Identity, IdentityVerdict, read_identity};
use s3o_catalog::Catalog;
use s3o_model::clock::Clock;
use s3o_model::ids::IdSource;
use s3o_model::names::BackendName;

pub use accept::{AcceptAnswer, AcceptView, InstanceView};
pub use attach::REMOVED;
pub use records::RECORD_LEASE;

use crate::{Error, Report, Worker};
use marks::Compared;

/// Is notified when this instance freezes a backend.
pub trait FreezeObserver: Send + Sync {
    /// Called when this instance stops writing to and deleting from a backend.
    fn frozen(&self, backend: &BackendName, reason: &str);
}

/// Discards every notification; for tests.
impl FreezeObserver for () {
    fn frozen(&self, _backend: &BackendName, _reason: &str) {}
}

/// Timing of identity checks.
#[derive(Debug, Clone, Default)]
pub struct IdentitySettings {
    /// Longest age of a check that permits destructive work, by backend; others are checked every time.
    pub max_age: HashMap<BackendName, Duration>,
    /// Delay of deletes after the raise of an attach, by backend; others have none.
    pub delete_delay: HashMap<BackendName, Duration>,
    /// An attach does not raise a mark that was confirmed more recently than this.
    pub raise_age: Duration,
    /// Time that other instances have to record what they find before a backend can be accepted.
    pub answer_wait: Duration,
}

/// Constructor arguments of the worker.
pub struct IdentityParts {
    /// Marks of the backends in the catalog.
    pub identities: Arc<Catalog>,
    /// Identity records of all instances.
    pub records: Arc<Catalog>,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// Source of marks.
    pub ids: IdSource,
    /// Wall time and time since boot.
    pub clock: Arc<dyn Clock>,
    /// Identifier of this cluster.
    pub cluster: String,
    /// Host and listen address of this instance: the name of its records, which outlives the
    /// process.
    pub host: String,
    /// Is notified when a backend is frozen.
    pub alarm: Arc<dyn FreezeObserver>,
    /// Timing of checks.
    pub settings: IdentitySettings,
}

/// The identity worker: checks, raises and accepts marks.
pub struct IdentityWorker {
    parts: IdentityParts,
    states: Mutex<HashMap<BackendName, IdentityState>>,
    /// The backends that took writes when the shared states were last read.
    usable: Mutex<BTreeSet<BackendName>>,
}

/// State of one backend in this process.
#[derive(Debug, Clone, Default)]
struct IdentityState {
    /// Time of the last comparison.
    checked: Option<SinceBoot>,
    /// Time of the last attach attempt.
    tried: Option<SinceBoot>,
    /// True if this process confirmed a mark there.
    has_confirmed: bool,
    /// Unknown mark of another catalog that is not contested yet.
    to_contest: Option<String>,
    /// Sequence number of the mark that an attach found and did not raise: deletes wait for its raise.
    unraised: Option<u64>,
    /// Time from which deletes are permitted.
    deletes_from: Option<SinceBoot>,
    /// The record of another instance that blocked deletes at the last check.
    disputed: Option<String>,
    /// Time and hash of the last record of this instance.
    recorded: Option<(SinceBoot, String)>,
}

/// Time since boot: a wall clock that is set back would make old checks seem recent.
type SinceBoot = Duration;

impl IdentityWorker {
    /// Freezes every backend until its first attach.
    #[must_use]
    pub fn new(parts: IdentityParts) -> Self {
        for backend in parts.fleet.backends() {
            parts.fleet.set_frozen(backend.name(), Some(NOT_REACHED.to_owned()));
        }
        Self { parts, states: Mutex::default(), usable: Mutex::default() }
    }

    /// Whether the answers of a backend can be relied on: its identity was compared recently enough and fits.
    pub async fn permits(&self, backend: &SharedBackend) -> Result<bool, Error> {
        let name = backend.name();
        if self.is_frozen(name) {
            return Ok(false);
        }
        if self.is_recent(name) {
            return Ok(true);
        }
        match self.check(backend).await {
            Err(Error::Backend { source, .. }) => {
                tracing::info!(backend = %name, error = %source, "cannot read identity of backend, retrying");
                Ok(false)
            }
            checked => checked,
        }
    }

    /// Whether bytes may be deleted: the identity fits, the delay after the attach has passed, and no
    /// instance recorded a mismatch.
    pub async fn permits_deletes(&self, backend: &SharedBackend) -> Result<bool, Error> {
        let name = backend.name();
        if !self.is_raised(backend).await? {
            return Ok(false);
        }
        if self.state(name, |state| state.deletes_from).is_some_and(|from| self.boot() < from) {
            return Ok(false);
        }
        Ok(self.permits(backend).await? && !self.is_disputed(name).await?)
    }

    /// Compares catalog and backend, and freezes the backend for this instance if the identity does not
    /// fit. If a late write replaced the identity object, it raises the mark again.
    pub async fn check(&self, backend: &SharedBackend) -> Result<bool, Error> {
        let compared = self.compare(backend).await?;
        self.apply(backend, &compared).await
    }

    /// True if the identity fits; otherwise the backend is frozen.
    async fn apply(&self, backend: &SharedBackend, compared: &Compared) -> Result<bool, Error> {
        match compared.verdict {
            IdentityVerdict::Overwritten => self.raise(backend).await.map(|()| true),
            verdict if verdict.fits() => Ok(true),
            _ => self.freeze(backend, &compared.mismatch()).await.map(|()| false),
        }
    }

    /// Whether a backend has an identity object of this cluster under its own name, or none.
    pub async fn is_own_or_absent(&self, backend: &SharedBackend) -> Result<bool, Error> {
        let found = read_identity(backend.as_ref()).await.map_err(|source| Error::of(backend, source))?;
        Ok(found.is_none_or(|found| found.cluster == self.parts.cluster && found.backend == *backend.name()))
    }

    /// Compares the identity object that a probe read, and freezes the backend on a mismatch, unless it is frozen
    /// already.
    pub async fn judge_probe(&self, backend: &SharedBackend, found: Option<Identity>) -> Result<(), Error> {
        if self.is_frozen(backend.name()) {
            return Ok(());
        }
        let compared = self.compare_found(backend, found).await?;
        self.apply(backend, &compared).await.map(drop)
    }

    /// Why deletes wait although the identity fits, as `s3o status` shows it.
    #[must_use]
    pub fn deletes_wait(&self, name: &BackendName) -> Option<String> {
        let now = self.boot();
        let (unraised, from, disputed) =
            self.state(name, |state| (state.unraised, state.deletes_from, state.disputed.clone()));
        let has_delay = self.parts.settings.delete_delay.get(name).is_some_and(|delay| !delay.is_zero());
        if has_delay && unraised.is_some() {
            return Some("until the mark of the backend is raised, within minutes of the start".to_owned());
        }
        let wait = from.and_then(|from| from.checked_sub(now)).filter(|wait| !wait.is_zero());
        wait.map(|wait| format!("for another {} s after the backend was attached", wait.as_secs() + 1)).or(disputed)
    }

    fn is_frozen(&self, name: &BackendName) -> bool {
        self.parts.fleet.state(name).is_none_or(|standing| standing.frozen.is_some())
    }

    /// Whether the last check is younger than `max_age`. A check from before the end of the delete delay does
    /// not count: the mark of the attach must still be the current one then.
    fn is_recent(&self, name: &BackendName) -> bool {
        let max_age = self.parts.settings.max_age.get(name).copied().unwrap_or(Duration::ZERO);
        let (checked, from) = self.state(name, |state| (state.checked, state.deletes_from));
        let now = self.boot();
        let counts = |moment: SinceBoot| from.is_none_or(|from| now < from || moment >= from);
        checked.is_some_and(|moment| now.saturating_sub(moment) < max_age && counts(moment))
    }

    fn boot(&self) -> SinceBoot {
        self.parts.clock.since_boot()
    }

    fn state<T>(&self, name: &BackendName, work: impl FnOnce(&mut IdentityState) -> T) -> T {
        let mut states = self.states.lock();
        work(states.entry(name.clone()).or_default())
    }

    /// Raises the mark of one backend if its identity fits; true if it was raised.
    fn boxed_raise<'a>(&'a self, backend: &'a SharedBackend) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            if self.is_frozen(backend.name()) || !self.check(backend).await? {
                return Ok(false);
            }
            self.raise(backend).await.map(|()| true)
        })
    }
}

#[async_trait]
impl Worker for IdentityWorker {
    fn name(&self) -> &'static str {
        "identity"
    }

    /// Raises the mark of every backend whose identity fits, concurrently, so that one that fails does
    /// not block the others.
    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        let raises: Vec<_> = self.parts.fleet.backends().map(|backend| self.boxed_raise(backend)).collect();
        let mut failure = None;
        for raised in join_all(raises).await {
            match raised {
                Ok(true) => report.count("raised", 1),
                Ok(false) => {}
                Err(error) => {
                    report.count("failed", 1);
                    failure = failure.or(Some(error));
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }
}
