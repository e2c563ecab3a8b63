//! A catalog that frees every claim before the worker can settle it, as the watchdog does with a slow worker.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use s3o_catalog::unit::{Answer, Unit};
use s3o_catalog::{Catalog, Driver, DriverLayer, Error};

struct StaleClaims {
    inner: Arc<dyn Driver>,
    /// The catalog over this layer.
    catalog: Arc<OnceLock<Arc<Catalog>>>,
}

#[async_trait]
impl DriverLayer for StaleClaims {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        if let (true, Some(catalog)) = (unit.name == "settle_cleanups", self.catalog.get()) {
            let other = "00000000000000000000000000000001".parse().expect("a token");
            catalog.free_stale_claims(Duration::ZERO, other).await?;
        }
        self.inner.write(unit).await
    }
}

/// Such a catalog over this driver.
pub fn with_stale_claims(inner: Arc<dyn Driver>) -> Arc<Catalog> {
    let own = Arc::new(OnceLock::new());
    let catalog = Arc::new(Catalog::new(Arc::new(StaleClaims { inner, catalog: own.clone() })));
    own.get_or_init(|| catalog.clone());
    catalog
}
