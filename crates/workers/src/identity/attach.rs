//! Attaching backends: what was not reached yet, what is frozen, and what was exchanged meanwhile.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use s3o_backend::canaries::sweep;
use s3o_backend::fleet::NOT_REACHED;
use s3o_backend::identity::Verdict;
use s3o_backend::{Probe, SharedBackend};
use s3o_model::names::BackendName;

use super::marks::{Compared, Mismatch};
use super::{Identity, failed};
use crate::Error;

/// Why a backend takes no writes while the identity of another store at its path is not checked yet.
const EXCHANGED: &str = "another store is at its path; its identity is being checked";
/// How often an attach is tried for backends that were not reached, and for folders that are frozen.
const ATTACH_INTERVAL: Duration = Duration::from_secs(2);
/// How often a store is read that is frozen; each read is a paid request.
const REMOTE_INTERVAL: Duration = Duration::from_secs(30);
/// One in this many attaches answers the identity records of other instances.
const ATTACHES_A_DISPUTE: u32 = 15;
/// How many of the newest locations are looked up.
pub(super) const NEWEST_MAX: usize = 32;

impl Identity {
    /// Attaches backends for as long as the process lives, and answers the identity records of other instances.
    pub async fn watch(&self) {
        let mut attaches: u32 = 0;
        loop {
            self.attach().await;
            if attaches.is_multiple_of(ATTACHES_A_DISPUTE)
                && let Err(error) = self.answer_disputes().await
            {
                tracing::info!(%error, "identity records of other instances not answered, retrying");
            }
            attaches = attaches.wrapping_add(1);
            tokio::time::sleep(ATTACH_INTERVAL).await;
        }
    }

    /// Reaches the backends that were not reached yet, and compares those again that are frozen or
    /// were exchanged; says whether all were reached.
    pub async fn attach(&self) -> bool {
        let attempts: Vec<_> = self.parts.fleet.backends().map(|backend| self.boxed_attach(backend)).collect();
        // Side by side: one that hangs keeps no other from being reached.
        join_all(attempts).await.into_iter().all(|reached| reached)
    }

    fn boxed_attach<'a>(&'a self, backend: &'a SharedBackend) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            if !self.needs_attach(backend).await {
                return true;
            }
            let outcome = self.attach_one(backend).await;
            if let Err(error) = &outcome {
                tracing::warn!(backend = %backend.name(), %error, "backend not reached");
            }
            outcome.is_ok()
        })
    }

    async fn needs_attach(&self, backend: &SharedBackend) -> bool {
        let name = backend.name();
        let Some(frozen) = self.frozen_reason(name) else {
            let exchanged = backend.place_changed().await;
            if exchanged {
                tracing::warn!(backend = %name, "path of the backend leads to another store");
                self.parts.fleet.set_frozen(name, Some(EXCHANGED.to_owned()));
            }
            return exchanged;
        };
        let is_remote = self.parts.settings.max_age.contains_key(name);
        let now = self.parts.clock.now();
        let tried = self.state(name, |state| state.tried);
        let is_due = tried.is_none_or(|tried| now.since(tried) >= REMOTE_INTERVAL);
        frozen == NOT_REACHED || !is_remote || is_due
    }

    fn frozen_reason(&self, name: &BackendName) -> Option<String> {
        self.parts.fleet.standing(name).and_then(|standing| standing.frozen.clone())
    }

    async fn attach_one(&self, backend: &SharedBackend) -> Result<(), Error> {
        let name = backend.name();
        let now = self.parts.clock.now();
        self.state(name, |state| state.tried = Some(now));
        backend.reopen_place().await.map_err(|source| failed(backend, source))?;
        // An attach compares before it writes anything.
        let (compared, mismatch) = self.inspect(backend).await?;
        if let Some(mismatch) = mismatch {
            return self.freeze(backend, &mismatch).await;
        }
        self.learn_traits(backend).await?;
        if compared.verdict == Verdict::Fresh || self.must_raise(name, &compared).await? {
            self.raise(backend).await?;
        }
        if compared.verdict != Verdict::Fresh {
            self.delay_deletes(name);
        }
        self.thaw(name).await?;
        tracing::info!(backend = %name, "backend attached");
        Ok(())
    }

    /// What does not fit, if anything: the marks, or the newest bytes.
    pub(super) async fn inspect(&self, backend: &SharedBackend) -> Result<(Compared, Option<Mismatch>), Error> {
        let compared = self.compare(backend).await?;
        if !compared.verdict.fits() {
            let mismatch = compared.mismatch();
            return Ok((compared, Some(mismatch)));
        }
        let missing = match compared.verdict {
            Verdict::Fresh => None,
            _ => self.newest_missing(backend).await?,
        };
        let mismatch = missing.map(|key| Mismatch {
            reason: format!("the newest object is missing: is it a stale clone? ({key})"),
            missing: Some(key),
            ..compared.mismatch()
        });
        Ok((compared, mismatch))
    }

    /// The key of the newest location, if its bytes are missing. A clone that is younger than the
    /// last raise lacks what was written since.
    async fn newest_missing(&self, backend: &SharedBackend) -> Result<Option<String>, Error> {
        let name = backend.name();
        for key in self.parts.identities.newest_keys(name, NEWEST_MAX).await? {
            match backend.probe(&key).await {
                Probe::Present(_) => return Ok(None),
                Probe::Absent if self.parts.identities.is_located(name, &key).await? => return Ok(Some(key)),
                // It was deleted meanwhile: the next newest decides.
                Probe::Absent => {}
                Probe::Unknown(why) => return Err(failed(backend, s3o_backend::Error::Unknown(why))),
            }
        }
        Ok(None)
    }

    /// A start raises the mark, unless another instance has just done so.
    async fn must_raise(&self, name: &BackendName, compared: &Compared) -> Result<bool, Error> {
        if compared.verdict == Verdict::Overwritten {
            return Ok(true);
        }
        let age = self.parts.identities.mark_age(name).await?;
        Ok(age.is_none_or(|age| age >= self.parts.settings.raise_age))
    }

    /// Another catalog that claims the backend too has this long to notice the raise.
    pub(super) fn delay_deletes(&self, name: &BackendName) {
        let delay = self.parts.settings.delete_delay.get(name).copied().unwrap_or(Duration::ZERO);
        let from = self.parts.clock.now().after(delay);
        self.state(name, |state| state.deletes_from = (!delay.is_zero()).then_some(from));
    }

    pub(super) async fn learn_traits(&self, backend: &SharedBackend) -> Result<(), Error> {
        let traits = backend.probe_traits().await.map_err(|source| failed(backend, source))?;
        if let Err(error) = sweep(backend.as_ref(), &traits, self.parts.clock.now()).await {
            tracing::info!(backend = %backend.name(), %error, "old probe objects not deleted");
        }
        self.parts.fleet.set_traits(backend.name(), traits);
        Ok(())
    }
}
