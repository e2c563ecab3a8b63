//! Identity of the backends: marks that distinguish a wrong disk, a stale clone, a wrong bucket or a
//! restored catalog from the right one, before anything is written or deleted.
//!
//! Each instance decides for itself. Where an instance finds something that does not fit, it takes no
//! writes there and records what it found; while such a record lives, no instance deletes there.

mod accept;
mod attach;
mod marks;
mod records;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use s3o_backend::fleet::{Fleet, NOT_REACHED};
use s3o_backend::identity::{Verdict, read_identity};
use s3o_backend::{Error as BackendError, SharedBackend};
use s3o_catalog::{Identities, IdentityRecords};
use s3o_model::clock::Clock;
use s3o_model::ids::IdSource;
use s3o_model::names::BackendName;

pub use accept::{AcceptAnswer, AcceptView, InstanceView};
pub use records::RECORD_LEASE;

use crate::{Error, Report, Worker};

/// Is notified when this instance freezes a backend.
pub trait Alarm: Send + Sync {
    /// A backend takes no more writes and deletes.
    fn frozen(&self, backend: &BackendName, reason: &str);
}

/// Discards every notification; for tests.
impl Alarm for () {
    fn frozen(&self, _backend: &BackendName, _reason: &str) {}
}

/// How identities are checked.
#[derive(Debug, Clone, Default)]
pub struct IdentitySettings {
    /// How old a check may be before destructive work, by backend; others are checked every time.
    pub max_age: HashMap<BackendName, Duration>,
    /// How long after the raise of its attach a backend takes deletes; others take them at once.
    pub delete_delay: HashMap<BackendName, Duration>,
    /// An attach raises no mark that was confirmed more recently.
    pub raise_age: Duration,
    /// How long other instances have to record what they see before a backend can be accepted.
    pub answer_wait: Duration,
}

/// What the identity worker is made of.
pub struct IdentityParts {
    /// What the catalog knows of the backends.
    pub identities: Arc<dyn Identities>,
    /// What hosts found there.
    pub records: Arc<dyn IdentityRecords>,
    /// The backends.
    pub fleet: Arc<Fleet>,
    /// Where marks come from.
    pub ids: IdSource,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The name of this cluster.
    pub cluster: String,
    /// The host and the address on which this instance listens: what it finds is recorded under
    /// this name, whichever process finds it.
    pub host: String,
    /// Is notified when a backend is frozen.
    pub alarm: Arc<dyn Alarm>,
    /// How it works.
    pub settings: IdentitySettings,
}

/// Keeps the identities of the backends.
pub struct Identity {
    parts: IdentityParts,
    states: Mutex<HashMap<BackendName, State>>,
}

/// What this process knows of a backend.
#[derive(Debug, Clone, Default)]
struct State {
    /// When the identity was last compared.
    checked: Option<SinceBoot>,
    /// When a backend that is frozen was last attached again.
    tried: Option<SinceBoot>,
    /// Whether this process confirmed a mark there.
    has_confirmed: bool,
    /// The unknown mark of another catalog that still has to be contested.
    to_contest: Option<String>,
    /// The sequence number of the mark that an attach found and did not raise: deletes wait until it was raised.
    unraised: Option<u64>,
    /// When deletes begin.
    deletes_from: Option<SinceBoot>,
    /// Which record of another instance stopped the deletes when they were last asked for.
    disputed: Option<String>,
    /// When what was found was last recorded, and its hash.
    recorded: Option<(SinceBoot, String)>,
}

/// A moment of this process, as time since boot: a wall clock that is set back would make old checks young.
type SinceBoot = Duration;

impl Identity {
    /// An identity keeper for backends that were not reached yet: they take no writes.
    #[must_use]
    pub fn new(parts: IdentityParts) -> Self {
        for backend in parts.fleet.backends() {
            parts.fleet.set_frozen(backend.name(), Some(NOT_REACHED.to_owned()));
        }
        Self { parts, states: Mutex::default() }
    }

    /// Whether what a backend answers proves anything: it was compared recently enough and fits.
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
                tracing::info!(backend = %name, %source, "backend identity not readable, trying again later");
                Ok(false)
            }
            checked => checked,
        }
    }

    /// Whether bytes may be deleted: the backend fits, it has done so for long enough after it was
    /// attached, and no instance has a record of anything else.
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

    /// Compares catalog and backend now, and freezes the backend for this instance if it does not
    /// fit. An identity object that a late write replaced is written again.
    pub async fn check(&self, backend: &SharedBackend) -> Result<bool, Error> {
        let compared = self.compare(backend).await?;
        match compared.verdict {
            Verdict::Overwritten => self.raise(backend).await.map(|()| true),
            verdict if verdict.fits() => Ok(true),
            _ => self.freeze(backend, &compared.mismatch()).await.map(|()| false),
        }
    }

    /// Checks that a backend can be read and, unless it is frozen anyway, that its identity fits; if not, it is frozen.
    pub async fn probe(&self, backend: &SharedBackend) -> Result<(), Error> {
        if self.is_frozen(backend.name()) {
            return read_identity(backend.as_ref()).await.map(drop).map_err(|source| failed(backend, source));
        }
        self.check(backend).await.map(drop)
    }

    /// Why deletes wait on a backend that fits, for people.
    #[must_use]
    pub fn deletes_wait(&self, name: &BackendName) -> Option<String> {
        let now = self.boot();
        let (unraised, from, disputed) =
            self.state(name, |state| (state.unraised, state.deletes_from, state.disputed.clone()));
        let has_delay = self.parts.settings.delete_delay.get(name).is_some_and(|delay| !delay.is_zero());
        if has_delay && unraised.is_some() {
            return Some("until the mark of the backend was raised, within some minutes of the start".to_owned());
        }
        let rest = from.and_then(|from| from.checked_sub(now)).filter(|rest| !rest.is_zero());
        rest.map(|rest| format!("for {} s after the start", rest.as_secs() + 1)).or(disputed)
    }

    fn is_frozen(&self, name: &BackendName) -> bool {
        self.parts.fleet.standing(name).is_none_or(|standing| standing.frozen.is_some())
    }

    /// A check from before the moment when deletes begin does not count: the raise of the attach must
    /// still stand then.
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

    fn state<T>(&self, name: &BackendName, work: impl FnOnce(&mut State) -> T) -> T {
        let mut states = self.states.lock();
        work(states.entry(name.clone()).or_default())
    }

    /// Raises the mark of one backend if it fits; says whether it did.
    fn boxed_raise<'a>(&'a self, backend: &'a SharedBackend) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move {
            if self.is_frozen(backend.name()) || !self.check(backend).await? {
                return Ok(false);
            }
            self.raise(backend).await.map(|()| true)
        })
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

    /// Raises the mark of every backend that fits, side by side: one that cannot be written keeps no
    /// other from being raised.
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
