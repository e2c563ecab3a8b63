//! Follows the states of backends that all instances share, so that placement avoids a draining backend before its
//! reservation is refused.

use std::sync::Arc;
use std::time::Duration;

use s3o_backend::Fleet;
use s3o_catalog::Catalog;

use crate::Error;

/// How often the states are read.
const INTERVAL: Duration = Duration::from_secs(4);

/// Copies the shared states of the backends into the fleet of this instance.
pub struct BackendStateFollower {
    /// Source of the shared states.
    pub catalog: Arc<Catalog>,
    /// The configured backends.
    pub fleet: Arc<Fleet>,
}

impl BackendStateFollower {
    /// Follows the states; it does not return.
    pub async fn serve(&self) {
        loop {
            if let Err(error) = self.refresh().await {
                tracing::debug!(%error, "cannot read states of backends, retrying");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Reads the states once.
    pub async fn refresh(&self) -> Result<(), Error> {
        for state in self.catalog.backend_states().await? {
            self.fleet.set_draining(&state.name, state.draining_since.is_some());
        }
        Ok(())
    }
}
