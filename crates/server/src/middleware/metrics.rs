//! Prometheus metrics of S3 requests.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

/// The metrics of S3 requests; clones share the counters.
#[derive(Debug, Clone)]
pub struct RequestMetrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<OperationLabels, Histogram, fn() -> Histogram>,
    rejections: Counter,
}

fn durations() -> Histogram {
    // 0.5 ms to 16 s: from a cached HEAD to a large part on a slow backend.
    Histogram::new(exponential_buckets(0.0005, 2.0, 16))
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(durations),
            rejections: Counter::default(),
        }
    }
}

impl RequestMetrics {
    /// Registers `s3o_requests_total`, `s3o_request_duration_seconds` and
    /// `s3o_admission_rejections_total` in a registry that has no prefix of its own.
    #[must_use]
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("s3o_requests", "S3 requests by operation and status", metrics.requests.clone());
        registry.register(
            "s3o_request_duration_seconds",
            "Time from the request headers to the response headers",
            metrics.durations.clone(),
        );
        registry.register(
            "s3o_admission_rejections",
            "S3 requests rejected because all request slots were in use",
            metrics.rejections.clone(),
        );
        metrics
    }

    pub(super) fn reject(&self) {
        self.rejections.inc();
    }

    pub(super) fn record(&self, operation: &'static str, status: u16, duration: Duration) {
        self.requests.get_or_create(&RequestLabels { operation, status }).inc();
        self.durations.get_or_create(&OperationLabels { operation }).observe(duration.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::RequestMetrics;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use std::time::Duration;

    #[test]
    fn metric_names_and_labels_match_the_documentation() {
        let mut registry = Registry::default();
        let metrics = RequestMetrics::register(&mut registry);
        metrics.record("GetObject", 200, Duration::from_millis(3));
        metrics.reject();
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains(r#"s3o_requests_total{operation="GetObject",status="200"} 1"#), "{text}");
        assert!(text.contains(r#"s3o_request_duration_seconds_count{operation="GetObject"} 1"#), "{text}");
        assert!(text.contains("s3o_admission_rejections_total 1"), "{text}");
    }
}
