//! The metric for quota drift.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use s3o_catalog::AuditedStripe;
use s3o_model::names::BackendName;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DriftLabel {
    backend: String,
}

/// Quota drift of each backend, as the last audit on this instance found it.
#[derive(Debug, Clone, Default)]
pub struct DriftGauge(Family<DriftLabel, Gauge>);

impl DriftGauge {
    /// Registers the gauge with value 0 for these backends.
    pub fn register(registry: &mut Registry, backends: impl Iterator<Item = BackendName>) -> Self {
        let gauge = Self::default();
        for backend in backends {
            drop(gauge.0.get_or_create(&DriftLabel { backend: backend.to_string() }));
        }
        registry.register(
            "s3o_quota_drift_bytes",
            "Difference in bytes between quota accounting and its rows, as the last audit found it before the repair",
            gauge.0.clone(),
        );
        gauge
    }

    /// Sets the gauges from absolute differences, so that opposite drifts do not cancel out.
    pub(super) fn show(&self, quotas: &[AuditedStripe]) {
        let mut drifts = BTreeMap::<_, u64>::new();
        for booked in quotas {
            *drifts.entry(booked.backend.to_string()).or_default() += booked.drift_bytes();
        }
        for (backend, drift) in drifts {
            self.0.get_or_create(&DriftLabel { backend }).set(i64::try_from(drift).unwrap_or(i64::MAX));
        }
    }
}
