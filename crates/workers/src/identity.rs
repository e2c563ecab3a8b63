//! Whose the backends are: the marks that tell a wrong disk, a wrong bucket or a restored catalog
//! from the right one, before anything is destroyed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use s3o_backend::canaries::sweep;
use s3o_backend::fleet::{Fleet, NOT_REACHED};
use s3o_backend::identity::{IDENTITY_KEY, Identity as Carried, Known, Verdict, judge};
use s3o_backend::{Error as BackendError, SharedBackend};
use s3o_catalog::{Error as CatalogError, Identities, Verdict as CatalogVerdict};
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::ids::IdSource;
use s3o_model::names::BackendName;

use crate::{Error, Report, Worker};

/// How often a mark is written at most, when other instances write theirs meanwhile.
const WRITES_MAX: usize = 5;

/// Hears of backends that are not what the catalog takes them for.
pub trait Alarm: Send + Sync {
    /// A backend takes no more writes and deletes.
    fn frozen(&self, backend: &BackendName, reason: &str);
}

/// Nobody.
impl Alarm for () {
    fn frozen(&self, _backend: &BackendName, _reason: &str) {}
}

/// What the identity worker is made of.
pub struct IdentityParts {
    /// What the catalog knows of the backends.
    pub identities: Arc<dyn Identities>,
    /// The backends.
    pub fleet: Arc<Fleet>,
    /// Where marks come from.
    pub ids: IdSource,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The name of this cluster.
    pub cluster: String,
    /// Who hears of backends that were frozen.
    pub alarm: Arc<dyn Alarm>,
    /// How old a check may be before destructive work, by backend; others are checked every time.
    pub max_age: HashMap<BackendName, Duration>,
}

/// Keeps the identities of the backends.
pub struct Identity {
    parts: IdentityParts,
    checked: Mutex<HashMap<BackendName, Timestamp>>,
}

impl Identity {
    /// An identity keeper for backends that were not reached yet: they take no writes.
    #[must_use]
    pub fn new(parts: IdentityParts) -> Self {
        for backend in parts.fleet.backends() {
            parts.fleet.set_frozen(backend.name(), Some(NOT_REACHED.to_owned()));
        }
        Self { parts, checked: Mutex::default() }
    }

    /// Reaches the backends that were not reached yet; says whether all were.
    pub async fn attach(&self) -> bool {
        let missing = self.parts.fleet.backends().filter(|backend| !self.was_reached(backend.name()));
        // Side by side: one that hangs keeps no other from being reached.
        let attempts: Vec<_> = missing.map(|backend| self.boxed_attach(backend)).collect();
        join_all(attempts).await.into_iter().all(|reached| reached)
    }

    fn boxed_attach<'a>(&'a self, backend: &'a SharedBackend) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let outcome = self.attach_one(backend).await;
            if let Err(error) = &outcome {
                tracing::warn!(backend = %backend.name(), %error, "backend not reached");
            }
            outcome.is_ok()
        })
    }

    fn was_reached(&self, name: &BackendName) -> bool {
        let standing = self.parts.fleet.standing(name);
        standing.is_some_and(|standing| standing.frozen.as_deref() != Some(NOT_REACHED))
    }

    async fn attach_one(&self, backend: &SharedBackend) -> Result<(), Error> {
        let name = backend.name();
        // A start compares before it writes anything.
        match self.compare(backend).await? {
            Verdict::Fresh => {
                self.learn_traits(backend).await?;
                self.write_mark(backend).await?;
            }
            verdict if verdict.fits() => self.learn_traits(backend).await?,
            verdict => return self.freeze(name, verdict.reason()).await,
        }
        let known = self.parts.identities.known_backend(name).await?;
        self.parts.fleet.set_frozen(name, known.frozen_reason);
        tracing::info!(backend = %name, "backend attached");
        Ok(())
    }

    async fn learn_traits(&self, backend: &SharedBackend) -> Result<(), Error> {
        let traits = backend.probe_traits().await.map_err(|source| failed(backend, source))?;
        if let Err(error) = sweep(backend.as_ref(), &traits, self.parts.clock.now()).await {
            tracing::info!(backend = %backend.name(), %error, "old canaries left for another start");
        }
        self.parts.fleet.set_traits(backend.name(), traits);
        Ok(())
    }

    /// Whether destructive work may be done: the backend was compared recently enough and fits.
    pub async fn permits(&self, backend: &SharedBackend) -> Result<bool, Error> {
        let name = backend.name();
        if self.parts.fleet.standing(name).is_none_or(|standing| standing.frozen.is_some()) {
            return Ok(false);
        }
        if self.is_recent(name) {
            return Ok(true);
        }
        match self.compare(backend).await {
            Ok(verdict) if verdict.fits() => Ok(true),
            Ok(verdict) => self.freeze(name, verdict.reason()).await.map(|()| false),
            Err(Error::Backend { source, .. }) => {
                tracing::info!(backend = %name, %source, "identity not readable, lane waits");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Checks that a backend can be read and, unless it is frozen anyway, that its identity fits; if not, it is frozen.
    pub async fn probe(&self, backend: &SharedBackend) -> Result<(), Error> {
        let name = backend.name();
        if self.parts.fleet.standing(name).is_none_or(|standing| standing.frozen.is_some()) {
            return self.carried(backend).await.map(drop);
        }
        let verdict = self.compare(backend).await?;
        if verdict.fits() { Ok(()) } else { self.freeze(name, verdict.reason()).await }
    }

    fn is_recent(&self, name: &BackendName) -> bool {
        let max_age = self.parts.max_age.get(name).copied().unwrap_or(Duration::ZERO);
        let checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        checked.is_some_and(|moment| self.parts.clock.now().since(moment) < max_age)
    }

    /// Compares catalog and backend. What does not fit is looked at twice: somebody else may have
    /// written the first mark between the two looks of the first time.
    async fn compare(&self, backend: &SharedBackend) -> Result<Verdict, Error> {
        let verdict = self.compare_once(backend).await?;
        if verdict.fits() { Ok(verdict) } else { self.compare_once(backend).await }
    }

    /// A mark that was written and not confirmed is confirmed.
    async fn compare_once(&self, backend: &SharedBackend) -> Result<Verdict, Error> {
        let name = backend.name();
        // The backend first: a mark is in the catalog before it is written, so whatever is found
        // is known by then, even if the mark is raised meanwhile.
        let found = self.carried(backend).await?;
        let known = self.parts.identities.known_backend(name).await?;
        let known = Known {
            cluster: self.parts.cluster.clone(),
            backend: name.clone(),
            current: known.mark,
            next: known.next_mark,
            last: known.past_marks,
        };
        let verdict = judge(&known, found.as_ref());
        if let (Verdict::FitsNext, Some(found)) = (verdict, found) {
            self.confirm(name, &found.mark).await?;
        }
        let now = self.parts.clock.now();
        self.checked.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), now);
        Ok(verdict)
    }

    async fn carried(&self, backend: &SharedBackend) -> Result<Option<Carried>, Error> {
        let read = backend.read_own(IDENTITY_KEY).await;
        let decoded = read.and_then(|bytes| bytes.map(|bytes| Carried::decode(&bytes)).transpose());
        decoded.map_err(|source| failed(backend, source))
    }

    /// Plans a mark, writes it, confirms it; a crash in between leaves a mark that fits as the next.
    async fn write_mark(&self, backend: &SharedBackend) -> Result<(), Error> {
        // Whoever froze before the write has put an old mark over newer ones, perhaps one that the
        // catalog has long forgotten, and puts that right.
        for _ in 0..WRITES_MAX {
            if self.write_mark_once(backend).await? {
                return Ok(());
            }
        }
        Err(CatalogError::Guard(CatalogVerdict::RunAgain).into())
    }

    /// Says whether the mark that was written was still the one to be confirmed.
    async fn write_mark_once(&self, backend: &SharedBackend) -> Result<bool, Error> {
        let name = backend.name();
        let fresh = self.parts.ids.fresh().as_simple().to_string();
        let mark = self.parts.identities.plan_mark(name, &fresh).await?;
        let carried = Carried { cluster: self.parts.cluster.clone(), backend: name.clone(), mark: mark.clone() };
        backend.write_own(IDENTITY_KEY, carried.encode()).await.map_err(|source| failed(backend, source))?;
        self.confirm(name, &mark).await
    }

    /// Says whether this call confirmed the mark; if not, somebody else did.
    async fn confirm(&self, name: &BackendName, mark: &str) -> Result<bool, Error> {
        match self.parts.identities.confirm_mark(name, mark).await {
            Ok(()) => Ok(true),
            Err(error) if error.verdict() == Some(CatalogVerdict::RunAgain) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn freeze(&self, name: &BackendName, reason: &str) -> Result<(), Error> {
        tracing::error!(backend = %name, reason, "backend frozen");
        self.parts.fleet.set_frozen(name, Some(reason.to_owned()));
        self.parts.alarm.frozen(name, reason);
        Ok(self.parts.identities.set_frozen(name, Some(reason)).await?)
    }

    /// Takes a backend for what it says it is, because the operator says so.
    pub async fn accept(&self, name: &str) -> Result<(), Error> {
        let unknown = || Error::NoSuchBackend(name.to_owned());
        let name: BackendName = name.parse().map_err(|_| unknown())?;
        let backend = self.parts.fleet.get(&name).ok_or_else(unknown)?;
        // The mark first: it says that what is there now is ours, even if another place was before.
        self.write_mark(backend).await?;
        self.learn_traits(backend).await?;
        self.parts.identities.set_frozen(&name, None).await?;
        self.parts.fleet.set_frozen(&name, None);
        tracing::warn!(backend = %name, "backend accepted");
        Ok(())
    }
}

fn failed(backend: &SharedBackend, source: BackendError) -> Error {
    Error::Backend { backend: backend.name().clone(), source }
}

#[async_trait]
impl Worker for Identity {
    fn name(&self) -> &'static str {
        "identity"
    }

    /// Raises the mark of every backend that fits.
    async fn tick(&self, report: &mut Report) -> Result<(), Error> {
        for backend in self.parts.fleet.backends() {
            if self.permits(backend).await? && self.compare(backend).await?.fits() {
                self.write_mark(backend).await?;
                report.count("raised", 1);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Duration;

    use s3o_backend::layers::{Fault, Flaky};
    use s3o_backend::{Backend as _, Fleet, Memory};
    use s3o_catalog::{Catalog, Mode, Sqlite, SqliteOptions};
    use s3o_model::clock::{ManualClock, Timestamp};
    use s3o_model::entropy::SeededEntropy;
    use s3o_model::ids::IdSource;

    use super::{Identity, IdentityParts};
    use crate::{Report, Worker as _};

    #[tokio::test(start_paused = true)]
    async fn a_mark_that_is_raised_while_somebody_compares_freezes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1)));
        let options =
            SqliteOptions { path: folder.path().join("catalog.db"), mode: Mode::Inline, clock: clock.clone() };
        let catalog = Arc::new(Catalog::new(Arc::new(Sqlite::open(&options).expect("a catalog"))));
        let flaky = Arc::new(Flaky::new(Arc::new(Memory::new("disk".parse().expect("valid")))));
        let fleet = Arc::new(Fleet::new(vec![flaky.clone()]).expect("a fleet"));
        let identity = Identity::new(IdentityParts {
            identities: catalog,
            fleet: fleet.clone(),
            ids: IdSource::new(clock.clone(), Arc::new(SeededEntropy::new(1))),
            clock,
            cluster: "ours".to_owned(),
            alarm: Arc::new(()),
            max_age: HashMap::default(),
        });
        assert!(identity.attach().await);

        let backend = fleet.get(flaky.name()).expect("configured");
        flaky.fail_call(flaky.calls() + 1, Fault::Delay(Duration::from_secs(1)));
        let mut report = Report::default();
        let (permitted, raised) = tokio::join!(identity.permits(backend), identity.tick(&mut report));
        raised.expect("raised");
        assert!(permitted.expect("compared"));
        assert_eq!(fleet.standing(flaky.name()).expect("known").frozen, None);
    }
}
