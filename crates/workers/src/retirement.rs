//! Takes backends out of service at an operator's request: drain, undrain, remove.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::fleet::Fleet;
use s3o_backend::{DeleteAnswer, DeleteKey, Error as BackendError, SharedBackend};
use s3o_catalog::{BackendHoldings, Catalog, Error as CatalogError, MARK_LEASE, Verdict};
use s3o_model::clock::Clock;
use s3o_model::names::BackendName;
use s3o_model::physical_key::RESERVED_PREFIX;
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::drain::DrainProgress;
use crate::identity::REMOVED;
use crate::{Error, IdentityWorker};

/// How often a removal checks whether a planned mark was written.
const MARK_POLL: Duration = Duration::from_millis(200);
/// Number of s3o's own objects that one call lists and deletes.
const PAGE: usize = 100;

/// Drains and removes backends.
pub struct RetirementService {
    /// Has the states of the backends.
    pub catalog: Arc<Catalog>,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
    /// Compares the identity of a backend before s3o's own objects are deleted there.
    pub identity: Arc<IdentityWorker>,
    /// What this instance has moved.
    pub progress: DrainProgress,
    /// Starts the drain worker.
    pub drain_wakeup: Arc<Notify>,
    /// Measures the rate of a drain.
    pub clock: Arc<dyn Clock>,
}

/// State of a drain, as operators see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DrainView {
    /// Name of the backend.
    pub backend: String,
    /// True while it is draining.
    pub draining: bool,
    /// True if it is draining and holds nothing any more: it can be removed.
    pub complete: bool,
    /// When the drain began.
    pub started_at: Option<String>,
    /// Copies that are still there.
    pub remaining: u64,
    /// Bytes of these copies.
    pub remaining_bytes: u64,
    /// Writes under way there.
    pub intents: u64,
    /// Deletes that are queued there.
    pub cleanups: u64,
    /// Deletes that the backend refused too often.
    pub dead_letters: u64,
    /// Copies that the answering instance moved or removed.
    pub moved: u64,
    /// Bytes of these copies.
    pub moved_bytes: u64,
    /// Bytes per second since the drain began, by the answering instance.
    pub rate: Option<u64>,
    /// Seconds until the drain is complete, at that rate.
    pub eta_seconds: Option<u64>,
    /// Copies that could not be moved in the last pass, by reason.
    pub stuck: BTreeMap<String, u64>,
}

/// Why a request of an operator was not carried out. Nothing was changed, except possibly by one that failed: the
/// operator repeats it.
#[derive(Debug)]
pub enum RetirementRefused {
    /// No configured backend has this name.
    NoSuchBackend,
    /// Fewer backends than the highest factor would remain.
    TooFewRemain,
    /// An operator removed the backend, or is removing it.
    Removed,
    /// The backend is being written off, and this number of writes may still end there.
    WritesUnderWay(u64),
    /// Another instance may still write a mark there that it planned before.
    MarkPlanned,
    /// The backend still holds this.
    NotEmpty(BackendHoldings),
    /// Its path or bucket leads to a store of another cluster or backend.
    NotOurs,
    /// The catalog or the backend failed.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for RetirementRefused {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl RetirementService {
    /// Starts to drain a backend.
    pub async fn drain(&self, name: &str) -> Result<DrainView, RetirementRefused> {
        let name = self.find(name)?.name().clone();
        let configured: Vec<BackendName> = self.fleet.backends().map(|backend| backend.name().clone()).collect();
        match self.catalog.start_drain(&name, &configured).await {
            Ok(()) => {}
            Err(CatalogError::Guard(Verdict::PreconditionFailed)) => return Err(RetirementRefused::TooFewRemain),
            Err(CatalogError::Guard(Verdict::Closed)) => return Err(RetirementRefused::Removed),
            Err(error) => return Err(error.into()),
        }
        // This instance follows the change at once, the others within seconds.
        self.identity.follow_states().await?;
        self.drain_wakeup.notify_one();
        self.view(&name).await
    }

    /// Stops a drain; copies that were moved stay where they are.
    pub async fn undrain(&self, name: &str) -> Result<DrainView, RetirementRefused> {
        let name = self.find(name)?.name().clone();
        match self.catalog.stop_drain(&name).await {
            Ok(()) => {}
            Err(CatalogError::Guard(Verdict::Closed)) => return Err(RetirementRefused::Removed),
            Err(error) => return Err(error.into()),
        }
        self.identity.follow_states().await?;
        self.view(&name).await
    }

    /// Shows the state of a drain.
    pub async fn show(&self, name: &str) -> Result<DrainView, RetirementRefused> {
        let name = self.find(name)?.name().clone();
        self.view(&name).await
    }

    /// Removes a backend that holds nothing: deletes s3o's own objects there, and forgets it.
    pub async fn remove(&self, name: &str) -> Result<(), RetirementRefused> {
        let backend = self.find(name)?;
        let name = backend.name();
        if !self.identity.is_own_or_absent(backend).await? {
            return Err(RetirementRefused::NotOurs);
        }
        match self.catalog.begin_removal(name).await {
            Ok(()) => {}
            Err(CatalogError::Guard(Verdict::NotEmpty)) => {
                return Err(RetirementRefused::NotEmpty(self.catalog.backend_holdings(name).await?));
            }
            Err(error) => return Err(error.into()),
        }
        self.fleet.set_frozen(name, Some(REMOVED.to_owned()));
        self.wait_for_planned_mark(name).await?;
        delete_own_objects(backend).await.map_err(|source| Error::of(backend, source))?;
        self.catalog.finish_removal(name).await?;
        tracing::warn!(backend = %name, "backend removed, delete it from the configuration");
        Ok(())
    }

    /// Waits until no instance writes a mark that it planned before the removal began: its objects would be back after
    /// they were deleted.
    pub(crate) async fn wait_for_planned_mark(&self, name: &BackendName) -> Result<(), RetirementRefused> {
        let until = Instant::now() + MARK_LEASE;
        while self.catalog.is_mark_planned(name).await? {
            if Instant::now() >= until {
                return Err(RetirementRefused::MarkPlanned);
            }
            tokio::time::sleep(MARK_POLL).await;
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<&SharedBackend, RetirementRefused> {
        let name: BackendName = name.parse().map_err(|_| RetirementRefused::NoSuchBackend)?;
        self.fleet.get(&name).ok_or(RetirementRefused::NoSuchBackend)
    }

    async fn view(&self, name: &BackendName) -> Result<DrainView, RetirementRefused> {
        let states = self.catalog.backend_states().await?;
        let since = states.into_iter().find(|state| state.name == *name).and_then(|state| state.draining_since);
        let holdings = self.catalog.backend_holdings(name).await?;
        let pass = self.progress.of(name);
        let rate = since.and_then(|since| rate(pass.moved_bytes, self.clock.now().since(since)));
        Ok(DrainView {
            backend: name.to_string(),
            draining: since.is_some(),
            complete: since.is_some() && holdings.is_empty(),
            started_at: since.map(|since| since.to_string()),
            remaining: holdings.locations,
            remaining_bytes: holdings.bytes,
            intents: holdings.intents,
            cleanups: holdings.cleanups,
            dead_letters: holdings.dead_letters,
            moved: pass.moved,
            moved_bytes: pass.moved_bytes,
            rate,
            eta_seconds: rate.filter(|rate| *rate > 0).map(|rate| holdings.bytes / rate),
            stuck: pass.stuck.into_iter().collect(),
        })
    }
}

/// Bytes per second; `None` before anything was moved.
fn rate(moved_bytes: u64, elapsed: Duration) -> Option<u64> {
    (moved_bytes > 0).then(|| moved_bytes / elapsed.as_secs().max(1))
}

/// Deletes the identity object, the marks and the probe objects.
pub(crate) async fn delete_own_objects(backend: &SharedBackend) -> Result<(), BackendError> {
    loop {
        let page = backend.list(RESERVED_PREFIX, None, PAGE).await?;
        let targets: Vec<DeleteKey> =
            page.items.into_iter().map(|item| DeleteKey { key: item.key, version_id: None }).collect();
        if targets.is_empty() {
            return Ok(());
        }
        let answers = backend.delete_batch(&targets).await;
        let failed = answers.into_iter().find(|answer| !matches!(answer, DeleteAnswer::Deleted | DeleteAnswer::Absent));
        if let Some(answer) = failed {
            return Err(BackendError::Unknown(format!("an object of s3o was not deleted: {answer:?}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rate;
    use std::time::Duration;

    #[test]
    fn rate_is_shown_once_something_moved() {
        assert_eq!(rate(0, Duration::from_secs(10)), None);
        assert_eq!(rate(1000, Duration::from_secs(10)), Some(100));
        assert_eq!(rate(1000, Duration::ZERO), Some(1000));
    }
}
