//! The drift that the last audit found, for whoever reads the metrics.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use s3o_catalog::Booked;
use s3o_model::names::BackendName;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBackend {
    backend: String,
}

/// The drift that the last audit on this instance found in each backend's books.
#[derive(Debug, Clone, Default)]
pub struct DriftGauge(Family<OfBackend, Gauge>);

impl DriftGauge {
    /// A gauge that is shown in this registry, without a drift to begin with.
    pub fn register(registry: &mut Registry, backends: impl Iterator<Item = BackendName>) -> Self {
        let gauge = Self::default();
        for backend in backends {
            drop(gauge.0.get_or_create(&OfBackend { backend: backend.to_string() }));
        }
        registry.register(
            "s3o_quota_drift_bytes",
            "By how many bytes the last audit found the books wrong, before it repaired them",
            gauge.0.clone(),
        );
        gauge
    }

    /// Shows what an audit found. Drifts do not cancel each other out.
    pub(super) fn show(&self, books: &[Booked]) {
        let mut drifts = BTreeMap::<_, u64>::new();
        for booked in books {
            *drifts.entry(booked.backend.to_string()).or_default() += booked.drift_bytes();
        }
        for (backend, drift) in drifts {
            self.0.get_or_create(&OfBackend { backend }).set(i64::try_from(drift).unwrap_or(i64::MAX));
        }
    }
}
