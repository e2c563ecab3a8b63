//! Metrics of calls to the backends.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use s3o_backend::layers::Meter;
use s3o_model::names::BackendName;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    backend: String,
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    backend: String,
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TrafficLabel {
    backend: String,
}

/// Counts calls to the backends, their durations and their bytes.
#[derive(Debug, Clone)]
pub struct BackendMeter {
    requests: Family<CallLabels, Counter>,
    durations: Family<DurationLabels, Histogram>,
    ingress: Family<TrafficLabel, Counter>,
    egress: Family<TrafficLabel, Counter>,
}

impl BackendMeter {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let requests = Family::default();
        let durations = Family::new_with_constructor(latency as fn() -> Histogram);
        registry.register("s3o_backend_requests", "Calls to each backend by operation and outcome", requests.clone());
        registry.register("s3o_backend_duration_seconds", "Duration of calls to each backend", durations.clone());
        let (ingress, egress) = (Family::default(), Family::default());
        registry.register("s3o_backend_ingress_bytes", "Bytes sent to each backend", ingress.clone());
        registry.register("s3o_backend_egress_bytes", "Bytes read from each backend", egress.clone());
        Self { requests, durations, ingress, egress }
    }
}

/// From half a millisecond to about a minute.
fn latency() -> Histogram {
    Histogram::new(exponential_buckets(0.0005, 2.0, 18))
}

impl Meter for BackendMeter {
    fn observe(&self, backend: &BackendName, operation: &'static str, outcome: &'static str, duration: Duration) {
        let backend = backend.to_string();
        self.durations
            .get_or_create(&DurationLabels { backend: backend.clone(), operation })
            .observe(duration.as_secs_f64());
        self.requests.get_or_create(&CallLabels { backend, operation, outcome }).inc();
    }

    fn bytes_in(&self, backend: &BackendName, bytes: u64) {
        self.ingress.get_or_create(&TrafficLabel { backend: backend.to_string() }).inc_by(bytes);
    }

    fn bytes_out(&self, backend: &BackendName, bytes: u64) {
        self.egress.get_or_create(&TrafficLabel { backend: backend.to_string() }).inc_by(bytes);
    }
}
