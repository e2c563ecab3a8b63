//! The backends as input of a rebalance.

use s3o_catalog::Error as CatalogError;
use s3o_model::placement::BackendView;
use s3o_model::rebalance::BackendLoad;

use crate::Engine;

impl Engine {
    /// All configured backends with the counters and states of this moment, in configuration order.
    pub async fn backend_loads(&self) -> Result<Vec<BackendLoad>, CatalogError> {
        let movable = self.catalog.movable_backends().await?;
        let (views, usage) = self.views_and_usage().await?;
        let load = |view: BackendView| BackendLoad {
            used_bytes: usage.iter().find(|usage| usage.backend == view.name).map_or(0, |usage| usage.used_bytes),
            is_movable: movable.contains(&view.name),
            view,
        };
        Ok(views.into_iter().map(load).collect())
    }
}
