//! Gauges of this instance: its build and the health of the backends.

use std::sync::Arc;

use async_trait::async_trait;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use s3o_backend::Fleet;
use s3o_backend::fleet::Health;
use s3o_model::clock::Clock;
use s3o_server::admin::Refresh;

use super::Backend;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// Shows the health of the backends, and refreshes the gauges of the catalog with it.
pub struct HealthGauges<G> {
    fleet: Arc<Fleet>,
    clock: Arc<dyn Clock>,
    up: Family<Backend, Gauge>,
    frozen: Family<Backend, Gauge>,
    others: G,
}

impl<G> HealthGauges<G> {
    /// Registers the gauges.
    pub fn register(registry: &mut Registry, (fleet, clock): (Arc<Fleet>, Arc<dyn Clock>), others: G) -> Self {
        let (up, frozen, build) = (Family::default(), Family::default(), Family::<Build, Gauge>::default());
        registry.register("s3o_backend_up", "1 if the backend answers, 0 if it is away", up.clone());
        registry.register("s3o_backend_frozen", "1 if the backend takes no writes and no deletes", frozen.clone());
        registry.register("s3o_build_info", "Always 1; the label is the version of the program", build.clone());
        build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
        Self { fleet, clock, up, frozen, others }
    }

    fn show(&self) {
        for (name, health) in self.fleet.health(self.clock.now()) {
            let is_frozen = self.fleet.standing(&name).is_some_and(|standing| standing.frozen.is_some());
            let labels = Backend { backend: name.to_string() };
            self.up.get_or_create(&labels).set(i64::from(!matches!(health, Health::Away(_))));
            self.frozen.get_or_create(&labels).set(i64::from(is_frozen));
        }
    }
}

#[async_trait]
impl<G: Refresh> Refresh for HealthGauges<G> {
    async fn refresh(&self) {
        self.show();
        self.others.refresh().await;
    }
}
