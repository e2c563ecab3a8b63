//! One store, served by one instance or by two, in a bucket that keeps equal content once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use s3o_catalog::unit::{Answer, Statement, Unit};
use s3o_catalog::{Driver, DriverLayer, Error as CatalogError, Mode, Verdict};
use s3o_engine::{Declared, DeleteObject, Engine, PutObject};
use s3o_model::clock::SystemClock;
use s3o_model::conditions::WriteCondition;
use s3o_model::entropy::SystemEntropy;
use s3o_model::etag::Sha256;
use s3o_model::intent::DeclaredDigests;
use s3o_model::object::Attributes;
use s3o_tests::database::Database;
use s3o_tests::house::{bucket, get, key};
use s3o_tests::process::Process;
use s3o_tests::rest::{broken_at_rest, is_at_rest, tick, tick_all};
use s3o_tests::world::{Site, World};
use s3o_workers::{Report, VerifyScope};
use sha2::Digest as _;
use tokio::sync::Notify;

/// A store and who serves it.
pub struct House {
    world: World,
    truth: Arc<dyn Driver>,
    instances: Vec<Process>,
    seen: Arc<Seen>,
}

/// What is seen of the units of all instances.
#[derive(Default)]
struct Seen {
    /// Writes that made content.
    made: AtomicUsize,
    /// Units that found content made or condemned in the middle of referring to it.
    met: AtomicUsize,
}

/// How a body is sent.
pub struct Write {
    /// Whether its digest is known before it comes.
    pub announced: bool,
    /// Told when it is asked for.
    pub body_asked: Arc<Notify>,
}

/// A catalog whose units are seen.
struct Counting {
    inner: Arc<dyn Driver>,
    seen: Arc<Seen>,
}

#[async_trait]
impl DriverLayer for Counting {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, CatalogError> {
        let makes = unit.statements.iter().any(|statement| statement.sql.starts_with("INSERT INTO contents"));
        let answers = self.inner.write(unit).await;
        let count = match &answers {
            Ok(_) => makes.then_some(&self.seen.made),
            Err(CatalogError::Guard(Verdict::ResolveAgain)) => Some(&self.seen.met),
            Err(_) => None,
        };
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        answers
    }
}

fn world() -> World {
    let clock: Arc<dyn s3o_model::clock::Clock> = Arc::new(SystemClock);
    let site = Site::new("memory", u64::MAX, None, &clock);
    let world = World::new(clock, Arc::new(SystemEntropy), vec![site]);
    world.keep_once(bucket(), true);
    world
}

/// A catalog of its own on the server for tests, as each instance opens it.
async fn postgres(count: usize) -> Vec<Arc<dyn Driver>> {
    let database = Database::fresh().await;
    let mut drivers: Vec<Arc<dyn Driver>> = Vec::new();
    for _ in 0..count {
        drivers.push(Arc::new(database.open(None).await.expect("a catalog")));
    }
    drivers
}

impl House {
    /// One instance.
    pub async fn on_sqlite() -> Self {
        let world = world();
        let driver = world.open_catalog(Mode::Threaded).expect("a catalog");
        Self::over(world, vec![driver]).await
    }

    /// Two instances on one catalog.
    pub async fn on_postgres() -> Self {
        Self::over(world(), postgres(2).await).await
    }

    async fn over(world: World, drivers: Vec<Arc<dyn Driver>>) -> Self {
        let (seen, truth, mut instances) = (Arc::default(), drivers[0].clone(), Vec::new());
        for inner in drivers {
            let counting = Arc::new(Counting { inner, seen: Arc::clone(&seen) });
            let process = Process::start(&world, counting, world.backends()).await.expect("a start");
            assert!(process.identity.attach().await, "attached");
            instances.push(process);
        }
        instances[0].engine.create_bucket(&bucket()).await.expect("a bucket");
        Self { world, truth, instances, seen }
    }

    fn engine(&self, turn: usize) -> &Engine {
        &self.instances[turn % self.instances.len()].engine
    }

    /// Stores a body.
    pub async fn put(&self, turn: usize, name: &str, body: &[u8], write: Write) {
        let (bytes, asked) = (Bytes::copy_from_slice(body), write.body_asked);
        let stream = async move {
            asked.notify_one();
            Ok(bytes)
        };
        let sha256 = write.announced.then(|| Sha256(sha2::Sha256::digest(body).into()));
        let put = PutObject {
            bucket: bucket(),
            key: key(name),
            size_bytes: body.len() as u64,
            body: Box::pin(futures_util::stream::once(stream)),
            declared: Declared {
                digests: DeclaredDigests { sha256, ..DeclaredDigests::default() },
                ..Declared::default()
            },
            attributes: Attributes::default(),
            condition: WriteCondition::None,
            expiry: None,
        };
        self.engine(turn).put_object(put).await.unwrap_or_else(|error| panic!("put {name}: {error}"));
    }

    /// Deletes an object.
    pub async fn delete(&self, turn: usize, name: &str) {
        let delete = DeleteObject { bucket: bucket(), key: key(name), condition: WriteCondition::None };
        self.engine(turn).delete_object(delete).await.unwrap_or_else(|error| panic!("delete {name}: {error}"));
    }

    /// Reads an object.
    pub async fn read(&self, turn: usize, name: &str) -> Vec<u8> {
        let opened =
            self.engine(turn).get_object(get(name)).await.unwrap_or_else(|error| panic!("get {name}: {error}"));
        let chunks: Vec<Bytes> = opened.body.map(|chunk| chunk.expect("a chunk")).collect().await;
        chunks.concat()
    }

    /// How many writes made content, and how many units found it made or condemned under their hands.
    pub fn seen(&self) -> (usize, usize) {
        (self.seen.made.load(Ordering::Relaxed), self.seen.met.load(Ordering::Relaxed))
    }

    /// Deletes what is condemned, all the time.
    pub async fn keep_clean(self: Arc<Self>) {
        loop {
            for worker in self.instances.iter().flat_map(|instance| &instance.workers) {
                if ["cleanup", "pending_reaper"].contains(&worker.name()) {
                    tick(worker.as_ref(), &mut Report::default()).await;
                }
            }
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    /// Nothing is left: no object, no byte, no work, and everything agrees.
    pub async fn is_empty_at_rest(&self) {
        while !is_at_rest(self.truth.as_ref()).await {
            tick_all(&self.instances[0].workers).await;
        }
        let broken = broken_at_rest(&self.truth, &self.world).await;
        assert!(broken.is_empty(), "{broken:#?}");
        let verified = self.instances[0].verifier.verify(VerifyScope::DEEP).await;
        assert!(verified.holds, "{verified:#?}");
        let live = Statement::new("SELECT id FROM contents WHERE state = 'live'", vec![]);
        assert_eq!(self.truth.read(live).await.expect("a query"), []);
        let objects = Statement::new("SELECT key FROM objects", vec![]);
        assert_eq!(self.truth.read(objects).await.expect("a query"), []);
        let left: Vec<String> = self.world.sites[0].memory.keys();
        assert!(left.iter().all(|name| name.starts_with(".s3o/")), "{left:?}");
    }
}
