//! How long ago the stored bytes were last read and compared.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use s3o_catalog::Catalog;

/// The metric of the scrubber. It is not a number until the first pass begins.
pub(super) struct ScrubGauge(Gauge<f64, AtomicU64>);

impl ScrubGauge {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let gauge = Self(Gauge::default());
        gauge.0.set(f64::NAN);
        registry.register(
            "s3o_scrub_oldest_verified_seconds",
            "Every stored copy was read or written, and its digest compared, within this time",
            gauge.0.clone(),
        );
        gauge
    }

    pub(super) async fn read(&self, catalog: &Catalog) -> Result<(), s3o_catalog::Error> {
        let scrubbed = catalog.scrubbed_since().await?;
        self.0.set(scrubbed.map_or(f64::NAN, |(since, now)| now.since(since).as_secs_f64()));
        Ok(())
    }
}
