//! A harness with a backend and a driver that can do what a guard protects against.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use s3o_engine::{Declared, Error, PutObject};
use s3o_tests::environment::{Environment, ProcessSettings};
use s3o_tests::harness::Harness;

use crate::faulty_backend::{BackendFlaws, FaultyBackend};
use crate::faulty_driver::FaultyDriver;
use crate::{LEAKED, LOST};

pub use s3o_tests::process::{LATE, LEASE};

/// What a scenario changes before the process starts.
pub struct GuardTestPlan {
    pub flaws: BackendFlaws,
    pub announce: bool,
    /// The largest body that the backend takes in one call.
    pub put_bytes_max: u64,
    pub late_write_window: Duration,
    /// Maximum age of an identity check before deletes.
    pub identity_age: Duration,
}

impl Default for GuardTestPlan {
    fn default() -> Self {
        Self {
            flaws: BackendFlaws::default(),
            announce: true,
            put_bytes_max: u64::MAX,
            late_write_window: LATE,
            identity_age: Duration::ZERO,
        }
    }
}

pub struct GuardContext {
    pub harness: Harness,
    pub backend: Arc<FaultyBackend>,
    pub driver: Arc<FaultyDriver>,
}

impl GuardContext {
    pub async fn new(plan: GuardTestPlan) -> Self {
        let settings = ProcessSettings {
            announce: plan.announce,
            late_write_window: plan.late_write_window,
            identity_age_max: Some(plan.identity_age),
            ..ProcessSettings::default()
        };
        let environment = Arc::new(Environment::new(plan.put_bytes_max).with_settings(settings));
        let backend = Arc::new(FaultyBackend::new(&environment.backends[0], plan.flaws));
        let mut driver = None;
        let builder = Harness::builder(&environment)
            .backend_layer(|_, _| backend.clone())
            .catalog_layer(|inner| driver.insert(Arc::new(FaultyDriver::new(inner))).clone());
        let harness = builder.start_with_bucket().await;
        Self { harness, backend, driver: driver.expect("the layer was added") }
    }

    pub async fn put(&self, key: &str, body: &str) -> Result<(), Error> {
        self.put_declared(key, body, Declared::default()).await
    }

    pub async fn put_declared(&self, key: &str, body: &str, declared: Declared) -> Result<(), Error> {
        let client = Arc::new(());
        let put = PutObject { declared, ..self.harness.put(key, body.as_bytes(), &client) };
        self.harness.engine.put_object(put).await.map(drop)
    }

    /// What is wrong after faults ended and the workers ran for a day.
    pub async fn damage(&self) -> Vec<&'static str> {
        self.backend.flaky.clear();
        for _ in 0..24 * 6 {
            self.harness.reap_after(Duration::from_mins(10)).await;
            self.harness.clean_after(Duration::ZERO).await;
        }
        let location = |key: &String| self.backend.location(key).to_owned();
        let stored = self.backend.memory.keys().into_iter().filter(|key| !key.starts_with(".s3o/"));
        let stored: BTreeSet<String> = stored.collect();
        let located = self.harness.texts("SELECT physical_key FROM object_locations").await;
        let located: BTreeSet<String> = located.iter().map(location).collect();
        let waiting = "SELECT physical_key FROM cleanup_queue UNION ALL SELECT physical_key FROM cleanup_dlq \
             UNION ALL SELECT physical_key FROM pending_objects";
        let waiting: BTreeSet<String> = self.harness.texts(waiting).await.iter().map(location).collect();
        let mut damage = Vec::new();
        let unnamed = stored.iter().any(|key| !located.contains(key) && !waiting.contains(key));
        if unnamed || self.backend.memory.uploads() > 0 {
            damage.push(LEAKED);
        }
        if located.iter().any(|key| !stored.contains(key)) {
            damage.push(LOST);
        }
        damage
    }
}
