//! Usage of the backends in this month, by all instances.

use std::sync::Arc;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use s3o_workers::UsageLedger;

use super::{BackendLabel, signed};

/// The usage metrics and what they are read from.
pub(super) struct UsageGauges {
    ledger: Arc<UsageLedger>,
    requests: Family<BackendLabel, Gauge>,
    egress_bytes: Family<BackendLabel, Gauge>,
    ingress_bytes: Family<BackendLabel, Gauge>,
}

impl UsageGauges {
    pub(super) fn register(registry: &mut Registry, ledger: Arc<UsageLedger>) -> Self {
        let (requests, egress_bytes, ingress_bytes) = (Family::default(), Family::default(), Family::default());
        let gauges = Self { ledger, requests, egress_bytes, ingress_bytes };
        for (name, help, family) in [
            ("s3o_usage_api_requests", "Requests sent to the backend this month by all instances", &gauges.requests),
            ("s3o_usage_egress_bytes", "Body bytes received from the backend this month", &gauges.egress_bytes),
            ("s3o_usage_ingress_bytes", "Body bytes sent to the backend this month", &gauges.ingress_bytes),
        ] {
            registry.register(name, help, family.clone());
        }
        gauges
    }

    /// Shows the totals as last read if the catalog does not answer.
    pub(super) async fn read(&self) {
        let views = match self.ledger.refreshed().await {
            Ok(views) => views,
            Err(error) => {
                tracing::warn!(%error, "cannot read usage, metrics show the totals that this instance knows");
                self.ledger.views()
            }
        };
        for view in views {
            let label = BackendLabel::new(&view.backend);
            self.requests.get_or_create(&label).set(signed(view.totals.requests));
            self.egress_bytes.get_or_create(&label).set(signed(view.totals.egress_bytes));
            self.ingress_bytes.get_or_create(&label).set(signed(view.totals.ingress_bytes));
        }
    }
}
