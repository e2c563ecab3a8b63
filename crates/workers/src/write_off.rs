//! Write-off of a backend that will never come back: its rows are removed step by step, then the backend itself. A
//! write-off that was interrupted continues when it is requested again.

use std::time::Duration;

use s3o_backend::SharedBackend;
use s3o_backend::fleet::NOT_REACHED;
use s3o_catalog::{Error as CatalogError, Verdict, WriteOffTotal};
use s3o_model::circuit::CircuitState;
use s3o_model::names::BackendName;

use crate::Error;
use crate::identity::REMOVED;
use crate::retirement::{RetirementRefused, RetirementService, delete_own_objects};

/// How long the deletion of s3o's own objects may take: the store may hang.
const STORE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Rounds in which rows that appear meanwhile are written off, too.
const ROUNDS_MAX: usize = 10;

impl RetirementService {
    /// Removes a backend with everything that it holds. Returns what was lost with it.
    pub async fn write_off(&self, name: &str) -> Result<Vec<WriteOffTotal>, RetirementRefused> {
        let name: BackendName = name.parse().map_err(|_| RetirementRefused::NoSuchBackend)?;
        match self.catalog.begin_write_off(&name).await {
            Ok(()) => {}
            Err(CatalogError::Guard(Verdict::NoSuchObject)) => return Err(RetirementRefused::NoSuchBackend),
            Err(CatalogError::Guard(Verdict::Closed)) => return Err(RetirementRefused::Removed),
            Err(error) => return Err(error.into()),
        }
        let reachable = self.fleet.get(&name).filter(|_| self.is_reachable(&name));
        self.fleet.set_frozen(&name, Some(REMOVED.to_owned()));
        for _ in 0..ROUNDS_MAX {
            self.write_off_rows(&name).await?;
            let held = self.catalog.backend_holdings(&name).await?;
            if held.intents > 0 {
                return Err(RetirementRefused::WritesUnderWay(held.intents));
            }
            if !held.is_empty() {
                continue;
            }
            if let Some(backend) = reachable {
                self.wait_for_planned_mark(&name).await?;
                self.clear_store(backend).await;
            }
            match self.catalog.finish_removal(&name).await {
                Ok(()) => {
                    tracing::warn!(backend = %name, "backend written off, delete it from the configuration");
                    return Ok(self.catalog.write_off_totals(&name).await?);
                }
                Err(CatalogError::Guard(Verdict::NotEmpty)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RetirementRefused::NotEmpty(self.catalog.backend_holdings(&name).await?))
    }

    async fn write_off_rows(&self, name: &BackendName) -> Result<(), Error> {
        let mut position = String::new();
        while let Some(last) = self.catalog.write_off_copies(name, &position).await? {
            position = last;
        }
        while self.catalog.write_off_queues(name).await? {}
        Ok(())
    }

    fn is_reachable(&self, name: &BackendName) -> bool {
        let state = self.fleet.state(name);
        let is_attached = state.is_some_and(|state| {
            state.reachability.outage().is_none() && state.frozen.as_deref().is_none_or(|why| why != NOT_REACHED)
        });
        is_attached && self.fleet.worst_circuit(name) == CircuitState::Closed
    }

    /// Deletes s3o's own objects, if the store is the right one and answers in time. The removal does not depend on it.
    async fn clear_store(&self, backend: &SharedBackend) {
        let clear = async {
            if self.identity.is_own_or_absent(backend).await? {
                delete_own_objects(backend).await.map_err(|source| Error::of(backend, source))?;
            }
            Ok::<_, Error>(())
        };
        let name = backend.name();
        match tokio::time::timeout(STORE_WAIT_MAX, clear).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::info!(backend = %name, %error, "identity object left on written-off backend"),
            Err(_) => tracing::info!(backend = %name, "identity object left on written-off backend, it did not answer"),
        }
    }
}
