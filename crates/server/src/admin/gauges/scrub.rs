//! How long ago the stored bytes were last read and compared.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use s3o_catalog::Catalog;

/// The metric of the scrubber. It is absent until the first pass begins.
#[derive(Default)]
pub(super) struct ScrubGauge(Family<(), Gauge<f64, AtomicU64>>);

impl ScrubGauge {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let gauge = Self::default();
        registry.register(
            "s3o_scrub_oldest_verified_seconds",
            "Every stored copy was read or written, and its digest compared, within this time",
            gauge.0.clone(),
        );
        gauge
    }

    pub(super) async fn read(&self, catalog: &Catalog) -> Result<(), s3o_catalog::Error> {
        match catalog.scrubbed_since().await? {
            Some((since, now)) => {
                self.0.get_or_create(&()).set(now.since(since).as_secs_f64());
            }
            None => self.0.clear(),
        }
        Ok(())
    }
}
