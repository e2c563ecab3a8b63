//! The backends as input of a rebalance.

use s3o_catalog::Error as CatalogError;
use s3o_model::placement::BackendView;
use s3o_model::rebalance::BackendLoad;

use crate::Engine;

impl Engine {
    /// All configured backends with the counters and states of this moment, in configuration order.
    pub async fn backend_loads(&self) -> Result<Vec<BackendLoad>, CatalogError> {
        let counted = self.catalog.movable_backends().await?;
        let load = |mut view: BackendView| {
            let of = counted.iter().find(|(usage, _)| usage.backend == view.name);
            if let Some((usage, _)) = of {
                view.set_usage(usage);
            }
            BackendLoad {
                used_bytes: of.map_or(0, |(usage, _)| usage.used_bytes),
                is_movable: of.is_some_and(|(_, is_movable)| *is_movable),
                view,
            }
        };
        Ok(self.fleet.views(self.now()).into_iter().map(load).collect())
    }
}
