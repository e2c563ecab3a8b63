//! The admin API over real parts: SQLite in a temporary folder, one backend in memory, three workers.

mod parts;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use s3o_backend::layers::Flaky;
use s3o_backend::{Fleet, Memory, SharedBackend};
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Catalog, Driver, DriverLayer, Error, Mode, Sqlite, SqliteOptions};
use s3o_engine::{Declared, DeleteObject, Engine, PutObject};
use s3o_model::cleanup::Selection;
use s3o_model::clock::{ManualClock, Timestamp};
use s3o_model::conditions::WriteCondition;
use s3o_model::dead_letter::DeadLetter;
use s3o_model::names::{BackendName, BucketName};
use s3o_model::object::Attributes;
use s3o_workers::{AcceptAnswer, ClockGuard, IdentityWorker, Runner, SharedRules};
use serde_json::Value;
use tower::ServiceExt as _;

use super::super::router;
use crate::audit::{Audit, AuditFilter};
use parts::{AdminParts, identity};

pub const BEARER: Option<(&str, &str)> = Some(("authorization", "Bearer secret"));
const HOUR: Duration = Duration::from_hours(1);

/// Makes every read and write of the catalog fail while it is active.
struct CatalogOutage {
    driver: Sqlite,
    is_active: AtomicBool,
}

impl CatalogOutage {
    fn check(&self) -> Result<(), Error> {
        if self.is_active.load(Ordering::SeqCst) { Err(Error::Away("outage".to_owned())) } else { Ok(()) }
    }
}

#[async_trait]
impl DriverLayer for CatalogOutage {
    fn inner(&self) -> &dyn Driver {
        &self.driver
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        self.check()?;
        self.driver.write(unit).await
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        self.check()?;
        self.driver.read(query).await
    }
}

/// A server with a router, and the parts that tests change.
pub struct AdminFixture {
    router: Router,
    outage: Arc<CatalogOutage>,
    engine: Engine,
    runner: Arc<Runner>,
    pub catalog: Arc<Catalog>,
    pub identity: Arc<IdentityWorker>,
    pub clock_guard: Arc<ClockGuard>,
    pub rules: SharedRules,
    pub clock: Arc<ManualClock>,
    pub memory: Arc<Memory>,
    pub flaky: Arc<Flaky>,
    pub audit: Arc<Audit>,
    _folder: tempfile::TempDir,
}

pub fn disk() -> BackendName {
    "disk".parse().unwrap()
}

pub fn bucket() -> BucketName {
    "photos".parse().unwrap()
}

impl AdminFixture {
    /// The bucket `photos` exists and the backend `disk` is attached.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let path = folder.path().join("catalog.db");
        let driver = Sqlite::open(&SqliteOptions { path, mode: Mode::Inline, clock: clock.clone() }).unwrap();
        let outage = Arc::new(CatalogOutage { driver, is_active: AtomicBool::new(false) });
        let catalog = Arc::new(Catalog::new(outage.clone()));
        catalog.set_limit(&disk(), None).await.unwrap();
        catalog.create_bucket(&bucket(), None).await.unwrap();
        let memory = Arc::new(Memory::new(disk()));
        let flaky = Arc::new(Flaky::new(memory.clone()));
        let fleet = Arc::new(Fleet::new(vec![flaky.clone()]).unwrap());
        let identity = Arc::new(identity(&catalog, &fleet, &clock, "this:9000"));
        assert!(identity.attach().await);
        let audit = Arc::new(Audit::open(&folder.path().join("audit.jsonl"), clock.clone()).unwrap());
        let parts = AdminParts { catalog, fleet, clock, identity, rules: SharedRules::default(), audit };
        let (runner, clock_guard) = (Arc::new(parts.runner()), Arc::new(parts.clock_guard()));
        let state = parts.admin_state(&runner, &clock_guard);
        let engine = parts.engine();
        let AdminParts { catalog, clock, identity, rules, audit, .. } = parts;
        let router = router(state);
        Self {
            router,
            outage,
            engine,
            runner,
            catalog,
            identity,
            clock_guard,
            rules,
            clock,
            memory,
            flaky,
            audit,
            _folder: folder,
        }
    }

    pub fn set_catalog_outage(&self, is_active: bool) {
        self.outage.is_active.store(is_active, Ordering::SeqCst);
    }

    pub async fn put(&self, key: &str, body: &'static [u8]) {
        let put = PutObject {
            bucket: bucket(),
            key: key.parse().unwrap(),
            size_bytes: body.len() as u64,
            body: s3o_backend::body::whole(Bytes::from_static(body)),
            declared: Declared::default(),
            attributes: Attributes::default(),
            condition: WriteCondition::None,
            expiry: None,
        };
        self.engine.put_object(put).await.unwrap();
    }

    pub async fn delete(&self, key: &str) {
        let delete = DeleteObject { bucket: bucket(), key: key.parse().unwrap(), condition: WriteCondition::None };
        self.engine.delete_object(delete).await.unwrap();
    }

    /// Runs the cleanup worker on everything that is due within an hour.
    pub async fn clean_up(&self) {
        self.clock.advance(HOUR);
        assert_eq!(self.runner.run_now("cleanup").await.unwrap().error, None);
    }

    /// The hash that accepts the backend as it is now.
    pub async fn found_hash(&self) -> String {
        match self.identity.accept("disk", None).await.unwrap() {
            AcceptAnswer::Refused { shown, .. } => shown.hash,
            AcceptAnswer::Accepted => panic!("accepted without a hash"),
        }
    }

    /// Another instance with an empty store of the same name leaves a record of it.
    pub async fn record_dispute(&self, host: &str) {
        let store: SharedBackend = Arc::new(Memory::new(disk()));
        let fleet = Arc::new(Fleet::new(vec![store]).unwrap());
        assert!(identity(&self.catalog, &fleet, &self.clock, host).attach().await);
    }

    pub async fn dead_letters(&self) -> Vec<DeadLetter> {
        self.catalog.dead_letters(&Selection::default(), 0, 100).await.unwrap()
    }

    pub fn audited(&self) -> Vec<Value> {
        self.audit.latest(&AuditFilter::newest(100)).unwrap()
    }

    pub async fn ask(&self, method: &str, path: &str, header: Option<(&str, &str)>) -> (StatusCode, String) {
        self.send(method, path, header, "").await
    }

    pub async fn send(
        &self,
        method: &str,
        path: &str,
        header: Option<(&str, &str)>,
        body: &'static str,
    ) -> (StatusCode, String) {
        let mut request = Request::builder().method(method).uri(path);
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let response = self.router.clone().oneshot(request.body(Body::from(body)).unwrap()).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }
}
