//! One or two instances over one store with a dedup bucket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use s3o_catalog::unit::{Answer, Unit};
use s3o_catalog::{Driver, DriverLayer, Error as CatalogError, Mode, Verdict};
use s3o_engine::{Declared, PutObject};
use s3o_model::clock::SystemClock;
use s3o_model::entropy::SystemEntropy;
use s3o_model::etag::Sha256;
use s3o_model::intent::DeclaredDigests;
use s3o_tests::database::TestDatabase;
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Harness, bucket};
use s3o_tests::invariants::{is_settled, tick, tick_all};
use s3o_workers::Report;
use sha2::Digest as _;
use tokio::sync::Notify;

/// The instances that serve one store; requests name theirs by a number that wraps around.
pub struct Instances {
    harnesses: Vec<Harness<SystemClock>>,
    counts: Arc<UnitCounts>,
    stopping: AtomicBool,
}

/// Counts over the units of all instances.
#[derive(Default)]
struct UnitCounts {
    /// Units that inserted content.
    created: AtomicUsize,
    /// Units that found their content inserted or condemned by another unit meanwhile.
    conflicts: AtomicUsize,
}

/// How a body is sent.
pub struct RaceUpload {
    /// Whether the client declares the digest before the body.
    pub declares_digest: bool,
    /// Notified when the server asks for the body.
    pub body_requested: Arc<Notify>,
}

/// A catalog whose units are counted.
struct UnitCounter {
    inner: Arc<dyn Driver>,
    counts: Arc<UnitCounts>,
}

#[async_trait]
impl DriverLayer for UnitCounter {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, CatalogError> {
        let creates = unit.statements.iter().any(|statement| statement.sql.starts_with("INSERT INTO contents"));
        let answers = self.inner.write(unit).await;
        let count = match &answers {
            Ok(_) => creates.then_some(&self.counts.created),
            Err(CatalogError::Guard(Verdict::ResolveAgain)) => Some(&self.counts.conflicts),
            Err(_) => None,
        };
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        answers
    }
}

impl Instances {
    /// One instance, whose writer thread groups commits.
    pub async fn on_sqlite() -> Self {
        let environment = environment();
        let driver = environment.open_catalog(Mode::Threaded).expect("open the catalog");
        Self::start(&environment, vec![driver]).await
    }

    /// Two instances on one PostgreSQL database.
    pub async fn on_postgres() -> Self {
        let database = TestDatabase::fresh().await;
        let mut drivers: Vec<Arc<dyn Driver>> = Vec::new();
        for _ in 0..2 {
            drivers.push(Arc::new(database.open(None).await.expect("open the catalog")));
        }
        Self::start(&environment(), drivers).await
    }

    async fn start(environment: &Arc<Environment<SystemClock>>, drivers: Vec<Arc<dyn Driver>>) -> Self {
        let (counts, mut instances) = (Arc::<UnitCounts>::default(), Vec::new());
        for driver in drivers {
            let counts = counts.clone();
            let builder = Harness::builder(environment).driver(driver);
            instances.push(builder.catalog_layer(|inner| Arc::new(UnitCounter { inner, counts })).start().await);
        }
        instances[0].engine.create_bucket(&bucket()).await.expect("created");
        Self { harnesses: instances, counts, stopping: AtomicBool::default() }
    }

    fn instance(&self, number: usize) -> &Harness<SystemClock> {
        &self.harnesses[number % self.harnesses.len()]
    }

    pub async fn put(&self, instance: usize, name: &str, body: &[u8], upload: RaceUpload) {
        let (bytes, requested) = (Bytes::copy_from_slice(body), upload.body_requested);
        let stream = async move {
            requested.notify_one();
            Ok(bytes)
        };
        let sha256 = upload.declares_digest.then(|| Sha256(sha2::Sha256::digest(body).into()));
        let digests = DeclaredDigests { sha256, ..DeclaredDigests::default() };
        let harness = self.instance(instance);
        let put = PutObject {
            body: Box::pin(futures_util::stream::once(stream)),
            declared: Declared { digests, ..Declared::default() },
            ..harness.put(name, body, &Arc::new(()))
        };
        harness.engine.put_object(put).await.unwrap_or_else(|error| panic!("put {name}: {error}"));
    }

    pub async fn delete(&self, instance: usize, name: &str) {
        self.instance(instance).delete(name).await;
    }

    pub async fn read(&self, instance: usize, name: &str) -> Vec<u8> {
        self.instance(instance).read(name).await.unwrap_or_else(|| panic!("get {name}: no such key"))
    }

    /// Units that inserted content, and units that conflicted with another unit on the same content.
    pub fn counts(&self) -> (usize, usize) {
        (self.counts.created.load(Ordering::Relaxed), self.counts.conflicts.load(Ordering::Relaxed))
    }

    /// Runs cleanup and `pending_reaper` on every instance until [`Self::stop_cleaning`] was called. It ends between
    /// two ticks: a tick that is aborted leaves claims that other workers must wait for.
    pub async fn keep_clean(self: Arc<Self>) {
        while !self.stopping.load(Ordering::Relaxed) {
            for worker in self.harnesses.iter().flat_map(|instance| &instance.process.workers) {
                if ["cleanup", "pending_reaper"].contains(&worker.name()) {
                    tick(worker.as_ref(), &mut Report::default()).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    pub fn stop_cleaning(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Settles, and asserts that no object, content or byte is left.
    pub async fn check_empty(&self) {
        let first = &self.harnesses[0];
        while !is_settled(first.driver.as_ref()).await {
            tick_all(&first.process.workers).await;
        }
        first.check_settled().await;
        assert_eq!(first.rows("SELECT id FROM contents WHERE state = 'live'").await, []);
        assert_eq!(first.rows("SELECT key FROM objects").await, []);
        let left: Vec<String> = first.memory.keys();
        assert!(left.iter().all(|name| name.starts_with(".s3o/")), "{left:?}");
    }
}

fn environment() -> Arc<Environment<SystemClock>> {
    let environment = Environment::with_clock(Arc::new(SystemClock), Arc::new(SystemEntropy));
    Arc::new(environment.with_backend("memory", u64::MAX, None).with_dedup(true))
}
