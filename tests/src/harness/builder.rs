//! How a process is put together: which layers lie between it and its catalog and backends.

use std::sync::Arc;

use s3o_backend::SharedBackend;
use s3o_catalog::{Driver, Mode};
use s3o_model::clock::Clock;

use super::{Harness, bucket};
use crate::call_points::{CallPoints, CountedDriver};
use crate::environment::Environment;
use crate::process::Process;

type CatalogLayer<'a> = Box<dyn FnOnce(Arc<dyn Driver>) -> Arc<dyn Driver> + 'a>;
type BackendLayer<'a> = Box<dyn Fn(SharedBackend, &Arc<dyn Driver>) -> SharedBackend + 'a>;

/// Starts one process; without further calls it has no layers and a catalog that runs on the caller's thread.
pub struct HarnessBuilder<'a, C> {
    environment: Arc<Environment<C>>,
    mode: Mode,
    driver: Option<Arc<dyn Driver>>,
    points: Option<CallPoints>,
    catalog_layer: Option<CatalogLayer<'a>>,
    backend_layer: Option<BackendLayer<'a>>,
}

impl<'a, C: Clock + 'static> HarnessBuilder<'a, C> {
    pub(super) fn new(environment: &Arc<Environment<C>>) -> Self {
        Self {
            environment: environment.clone(),
            mode: Mode::Inline,
            driver: None,
            points: None,
            catalog_layer: None,
            backend_layer: None,
        }
    }

    /// How SQLite runs its statements.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Uses an open catalog instead of the one of the environment.
    #[must_use]
    pub fn driver(self, driver: Arc<dyn Driver>) -> Self {
        Self { driver: Some(driver), ..self }
    }

    /// Counts every call to the catalog and to the first backend.
    #[must_use]
    pub fn points(self, points: CallPoints) -> Self {
        Self { points: Some(points), ..self }
    }

    /// Puts a layer between the process and its catalog.
    #[must_use]
    pub fn catalog_layer(self, layer: impl FnOnce(Arc<dyn Driver>) -> Arc<dyn Driver> + 'a) -> Self {
        Self { catalog_layer: Some(Box::new(layer)), ..self }
    }

    /// Puts a layer between the process and each of its backends; it is given the catalog without layers.
    #[must_use]
    pub fn backend_layer(self, layer: impl Fn(SharedBackend, &Arc<dyn Driver>) -> SharedBackend + 'a) -> Self {
        Self { backend_layer: Some(Box::new(layer)), ..self }
    }

    /// Starts the process, attaches its backends and creates the bucket.
    pub async fn start_with_bucket(self) -> Harness<C> {
        let harness = self.start().await;
        harness.engine.create_bucket(&bucket()).await.expect("created");
        harness
    }

    /// Starts the process and attaches its backends.
    pub async fn start(self) -> Harness<C> {
        let harness = self.start_detached().await;
        let identity = &harness.process.identity;
        // An attach writes to the backend, so an injected fault may end it: the program retries, a dead process waits.
        let attached = identity.attach().await || harness.points.has_injected() && identity.attach().await;
        assert!(attached, "attached");
        harness
    }

    /// Starts the process; its backends take no writes before the test attaches them.
    pub async fn start_detached(self) -> Harness<C> {
        let Self { environment, mode, driver, points, catalog_layer, backend_layer } = self;
        let driver = driver.unwrap_or_else(|| environment.open_catalog(mode).expect("open the catalog"));
        let mut layered = driver.clone();
        if let Some(points) = &points {
            environment.backends[0].flaky.set_fault_plan(Some(Arc::new(points.clone())));
            layered = Arc::new(CountedDriver { inner: layered, points: points.clone() });
        }
        if let Some(layer) = catalog_layer {
            layered = layer(layered);
        }
        let mut backends = environment.shared_backends();
        if let Some(layer) = backend_layer {
            backends = backends.into_iter().map(|backend| layer(backend, &driver)).collect();
        }
        let process = Process::start(&environment, layered, backends).await.expect("start the process");
        let first = environment.backends[0].clone();
        Harness {
            engine: process.engine.clone(),
            catalog: process.catalog.clone(),
            driver,
            memory: first.memory,
            flaky: first.flaky,
            points: points.unwrap_or_default(),
            clock: environment.clock.clone(),
            process,
            environment,
        }
    }
}
