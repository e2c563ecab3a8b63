//! Attaches backends that were not reached yet, that are frozen, or whose path leads to another store.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use s3o_backend::fleet::NOT_REACHED;
use s3o_backend::identity::IdentityVerdict;
use s3o_backend::probe_objects::delete_stale;
use s3o_backend::{Probe, SharedBackend};
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;

use super::IdentityWorker;
use super::marks::{Compared, Mismatch};
use crate::Error;

/// Why a backend takes no writes while the identity of another store at its path is not checked yet.
const EXCHANGED: &str = "its path leads to another store; the identity is being checked";
/// Why a backend is frozen that an operator removed and that the configuration still names.
pub const REMOVED: &str =
    "an operator removed it: delete it from the configuration, or run `s3o backend accept NAME` to use it again";
/// How often an attach is tried for backends that were not reached, and for folders that are frozen.
const ATTACH_INTERVAL: Duration = Duration::from_secs(2);
/// Why a backend is frozen that lacks the newest object.
const NEWEST_MISSING: &str = "the newest object is missing: the backend may be a stale clone";
/// How often a frozen S3 store is read; each read is a paid request.
const REMOTE_INTERVAL: Duration = Duration::from_secs(30);
/// How often a folder that is frozen for a missing newest object is probed: the catalog reads all locations for it.
const NEWEST_INTERVAL: Duration = Duration::from_secs(10);
/// Number of newest locations that are probed.
const NEWEST_MAX: usize = 32;
/// Largest clock difference between instances.
const CLOCK_SKEW_MAX: Duration = Duration::from_mins(1);

impl IdentityWorker {
    /// Attaches backends; it does not return. Each backend has its own loop, so that one that hangs does not block the
    /// others.
    pub async fn watch(&self) {
        let loops: Vec<_> = self.parts.fleet.backends().map(|backend| self.boxed_watch(backend)).collect();
        join_all(loops).await;
    }

    fn boxed_watch<'a>(&'a self, backend: &'a SharedBackend) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            loop {
                self.boxed_attach(backend).await;
                tokio::time::sleep(ATTACH_INTERVAL).await;
            }
        })
    }

    /// Attaches the backends that were not reached yet, are frozen, or whose path leads to another store;
    /// true if all were reached.
    pub async fn attach(&self) -> bool {
        let attempts: Vec<_> = self.parts.fleet.backends().map(|backend| self.boxed_attach(backend)).collect();
        // Concurrently, so that one that hangs does not block the others.
        join_all(attempts).await.into_iter().all(|reached| reached)
    }

    fn boxed_attach<'a>(&'a self, backend: &'a SharedBackend) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            if !self.needs_attach(backend).await {
                return true;
            }
            let outcome = self.attach_one(backend).await;
            if let Err(error) = &outcome {
                tracing::warn!(backend = %backend.name(), %error, "cannot reach backend, retrying");
            }
            outcome.is_ok()
        })
    }

    async fn needs_attach(&self, backend: &SharedBackend) -> bool {
        let name = backend.name();
        let Some(frozen) = self.parts.fleet.frozen_reason(name) else {
            let exchanged = backend.store_changed().await;
            if exchanged {
                tracing::warn!(backend = %name, "backend path leads to another store, checking its identity");
                self.parts.fleet.set_frozen(name, Some(EXCHANGED.to_owned()));
            }
            return exchanged;
        };
        let is_remote = self.parts.settings.max_age.contains_key(name);
        let (now, tried) = (self.boot(), self.state(name, |state| state.tried));
        let interval = if is_remote && frozen != NOT_REACHED {
            REMOTE_INTERVAL
        } else if frozen.starts_with(NEWEST_MISSING) {
            NEWEST_INTERVAL
        } else {
            Duration::ZERO
        };
        tried.is_none_or(|tried| now.saturating_sub(tried) >= interval)
    }

    async fn attach_one(&self, backend: &SharedBackend) -> Result<(), Error> {
        let name = backend.name();
        let now = self.boot();
        self.state(name, |state| state.tried = Some(now));
        // Without an identity, a removed backend would look like a new one.
        if self.parts.identities.known_backend(name).await?.removed {
            self.parts.fleet.set_frozen(name, Some(REMOVED.to_owned()));
            self.parts.fleet.skip_probe(name);
            return Ok(());
        }
        backend.reopen_store().await.map_err(|source| Error::of(backend, source))?;
        // An attach compares before it writes anything.
        let (compared, mismatch) = self.inspect(backend).await?;
        if let Some(mismatch) = mismatch {
            return self.freeze(backend, &mismatch).await;
        }
        backend.trust_store().await;
        self.learn_traits(backend).await?;
        let unraised = if compared.verdict == IdentityVerdict::Fresh || self.must_raise(name, &compared).await? {
            self.raise(backend).await?;
            None
        } else {
            Some(compared.known.mark_sequence)
        };
        self.state(name, |state| state.unraised = unraised);
        if compared.verdict != IdentityVerdict::Fresh {
            self.delay_deletes(name);
        }
        self.thaw(name).await?;
        tracing::info!(backend = %name, "backend attached");
        Ok(())
    }

    /// Compares the marks and probes the newest objects; returns the mismatch, if any.
    pub(super) async fn inspect(&self, backend: &SharedBackend) -> Result<(Compared, Option<Mismatch>), Error> {
        let compared = self.compare(backend).await?;
        if !compared.verdict.fits() {
            let mismatch = compared.mismatch();
            return Ok((compared, Some(mismatch)));
        }
        let missing = match compared.verdict {
            IdentityVerdict::Fresh => None,
            _ => self.newest_missing(backend).await?,
        };
        let mismatch = missing.map(|key| Mismatch {
            reason: format!("{NEWEST_MISSING} ({key})"),
            missing: Some(key),
            ..compared.mismatch()
        });
        Ok((compared, mismatch))
    }

    /// The key of the newest location if its bytes are missing. A stale clone that is younger than the
    /// last raise has a fitting mark but lacks what was written since.
    async fn newest_missing(&self, backend: &SharedBackend) -> Result<Option<String>, Error> {
        let name = backend.name();
        for key in self.newest_keys(name).await? {
            match backend.probe((&key).into()).await {
                Probe::Present(_) => return Ok(None),
                Probe::Absent if self.parts.identities.is_located(name, &key).await? => return Ok(Some(key)),
                // It was deleted since the query: the next newest decides.
                Probe::Absent => {}
                Probe::Unknown(why) => return Err(Error::of(backend, s3o_backend::Error::Unknown(why))),
            }
        }
        Ok(None)
    }

    /// The keys of the newest locations, without identifiers from the future, which a wrong clock wrote.
    pub(super) async fn newest_keys(&self, name: &BackendName) -> Result<Vec<String>, Error> {
        Ok(self.parts.identities.newest_keys(name, self.newest_upto(), NEWEST_MAX).await?)
    }

    pub(super) fn newest_upto(&self) -> Timestamp {
        self.parts.clock.now().after(CLOCK_SKEW_MAX)
    }

    /// A start raises the mark unless another instance raised it within `raise_age`.
    async fn must_raise(&self, name: &BackendName, compared: &Compared) -> Result<bool, Error> {
        if compared.verdict == IdentityVerdict::Overwritten {
            return Ok(true);
        }
        let age = self.parts.identities.mark_age(name).await?;
        Ok(age.is_none_or(|age| age >= self.parts.settings.raise_age))
    }

    /// Whether the mark was raised, by this instance or another one of this catalog, since the attach. A copy of the
    /// catalog that was taken just before knows the mark that the attach found; deletes wait for one that it cannot
    /// know.
    pub(super) async fn is_raised(&self, backend: &SharedBackend) -> Result<bool, Error> {
        let name = backend.name();
        let has_delay = self.parts.settings.delete_delay.get(name).is_some_and(|delay| !delay.is_zero());
        let Some(found) = self.state(name, |state| state.unraised).filter(|_| has_delay) else { return Ok(true) };
        let known = self.parts.identities.known_backend(name).await?;
        if known.mark_sequence <= found {
            let age = self.parts.identities.mark_age(name).await?;
            if age.is_none_or(|age| age < self.parts.settings.raise_age) || !self.boxed_raise(backend).await? {
                return Ok(false);
            }
        }
        self.state(name, |state| state.unraised = None);
        self.delay_deletes(name);
        Ok(true)
    }

    /// Delays deletes, so that another catalog that uses the same backend can notice the raise first.
    pub(super) fn delay_deletes(&self, name: &BackendName) {
        let delay = self.parts.settings.delete_delay.get(name).copied().unwrap_or(Duration::ZERO);
        let from = self.boot() + delay;
        self.state(name, |state| state.deletes_from = (!delay.is_zero()).then_some(from));
    }

    pub(super) async fn learn_traits(&self, backend: &SharedBackend) -> Result<(), Error> {
        let traits = backend.probe_traits().await.map_err(|source| Error::of(backend, source))?;
        if let Err(error) = delete_stale(backend.as_ref(), &traits, self.parts.clock.now()).await {
            tracing::info!(backend = %backend.name(), %error, "cannot delete old probe objects, retrying later");
        }
        self.parts.fleet.set_traits(backend.name(), traits);
        Ok(())
    }
}
