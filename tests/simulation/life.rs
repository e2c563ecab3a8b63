//! One seed: lives of the process, each in a runtime of its own, ended as a crash ends them.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use s3o_backend::SharedBackend;
use s3o_cache::CacheSettings;
use s3o_catalog::unit::Statement;
use s3o_catalog::{Driver, Mode};
use s3o_engine::multipart::{UploadRef, UploadsQuery};
use s3o_engine::{Declared, Error, PutObject, Wanted};
use s3o_model::clock::Clock;
use s3o_model::conditions::WriteCondition;
use s3o_model::entropy::SeededEntropy;
use s3o_model::multipart::PART_BYTES_MIN;
use s3o_model::object::Attributes;
use s3o_tests::database::StillDatabase;
use s3o_tests::process::Process;
use s3o_tests::rest::{broken_at_rest, broken_now, is_at_rest, tick_all};
use s3o_tests::world::{Site, World};
use tokio::runtime::Builder;
use tokio::task::{JoinError, JoinSet};

use crate::bodies::Bodies;
use crate::client::{Client, Memory, Town, bucket, object_key};
use crate::journal::Journal;
use crate::ledger::{BIG, HUGE, Ledger, SMALL};
use crate::model::{Condition, Value, Write};
use crate::requests::get_request;
use crate::sky::Sky;
use crate::storm::Storm;
use crate::upkeep::{Changes, attach_until_all, expire_elsewhere, tick_and_tell, tick_by_chance};
use crate::watched::{Crimes, Distant, Watched};

const CLIENTS: usize = 4;
/// The first backend is small and soon full, so that writes go to the second.
const SMALL_SITE_BYTES: u64 = 12_000;
/// The second takes larger bodies in parts only.
const PUT_BYTES_MAX: u64 = 1_000;

/// Room for some of the small bodies, for less time than a seed takes.
const CACHE: CacheSettings = CacheSettings { max_bytes: 8_000, object_bytes_max: 3_000, ttl: Duration::from_mins(2) };

/// How far the clock jumps ahead in one life at most, unless the seed is about just that: a call
/// that hangs meanwhile still ends within the time that a write may be late.
const JUMPS_MAX: Duration = Duration::from_mins(25);

/// Less than the clock jumps ahead at once: workers lose what they claimed while they live, too.
const STUCK_AFTER: Duration = Duration::from_mins(4);

/// One seed under way.
pub struct Simulation {
    world: World,
    sky: Arc<Sky>,
    storm: Arc<Storm>,
    crimes: Arc<Crimes>,
    town: Arc<Town>,
    clients: Vec<Arc<Mutex<Memory>>>,
    journal: Journal,
    rng: Rng,
}

/// A process and what tests see of it.
struct Life {
    process: Process,
    truth: Arc<dyn Driver>,
    /// How many intents an earlier life left.
    left_intents: u64,
}

/// Runs one seed to its end; panics if anything that must hold does not.
pub fn run(seed: u64, journal: &Journal, sky: &Arc<Sky>, database: Option<&StillDatabase>) {
    let mut simulation = Simulation::new(seed, journal, sky);
    simulation.world = simulation.world.on(database);
    let mut crashes = simulation.plan();
    loop {
        let next = crashes.pop();
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(simulation.live(next));
        // Whatever was under way ends where it stands.
        drop(runtime);
        if next.is_none() {
            return;
        }
        simulation.journal.count("fault crash");
        simulation.journal.tell(format_args!("crash"));
        simulation.town.ledger().lose_all();
    }
}

impl Simulation {
    fn new(seed: u64, journal: &Journal, sky: &Arc<Sky>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let clock: Arc<dyn Clock> = sky.clone();
        let has_big = rng.u8(..8) == 0;
        // Where both are small, writes find no room at all.
        let far_bytes = (!has_big && rng.u8(..4) == 0).then_some(SMALL_SITE_BYTES);
        let sites = vec![
            Site::new("near", u64::MAX, Some(SMALL_SITE_BYTES), &clock),
            // Five mebibytes go in one, or every thousand of them would be a call.
            Site::new("far", if has_big { u64::MAX } else { PUT_BYTES_MAX }, far_bytes, &clock),
        ];
        let dedup = rng.bool();
        let town = Town {
            ledger: Mutex::new(Ledger::new(sky.clone())),
            rules: tokio::sync::Mutex::default(),
            sky: sky.clone(),
            journal: journal.clone(),
            budget: Mutex::new(rng.u64(200..=240)),
            has_big,
            dedup,
        };
        let memory = |number| Memory { number, rng: rng.fork(), uploads: Vec::new() };
        let clients = (0..CLIENTS).map(memory).map(|memory| Arc::new(Mutex::new(memory))).collect();
        let storm = Arc::new(Storm::new(rng.fork(), journal.clone()));
        let entropy = Arc::new(SeededEntropy::new(rng.u64(..)));
        let mut world = World::new(clock, entropy, sites);
        world.keep_once(bucket(), dedup);
        world.stuck_after = STUCK_AFTER;
        // So small that several are under way at once.
        world.cleanup_batch = 4;
        // In half of the seeds; one so small that bodies come and go.
        world.cache = (seed % 2 == 1).then_some(CACHE);
        Self {
            world,
            sky: sky.clone(),
            storm,
            crimes: Arc::default(),
            town: Arc::new(town),
            clients,
            journal: journal.clone(),
            rng,
        }
    }

    /// After how many operations still to come the process crashes, last first; at least once.
    fn plan(&mut self) -> Vec<u64> {
        let crashes = self.rng.u64(1..=3);
        let mut left: Vec<u64> = (0..crashes).map(|_| self.rng.u64(10..190)).collect();
        left.sort_unstable();
        left
    }

    /// One life: to a crash when so many operations are left, or to the end.
    async fn live(&mut self, crash_at: Option<u64>) {
        self.sky.rise();
        let life = self.start().await;
        self.check_now(&life).await;
        self.set_up(&life).await;
        if self.rng.bool() {
            self.recover_in_peace(&life).await;
        }
        for site in &self.world.sites {
            site.flaky.set_weather(Some(self.storm.clone()));
        }
        self.storm.rage(true);
        let (mut upkeep, mut clients) = (self.spawn_upkeep(&life), self.spawn_clients(&life));
        if let Some(left) = crash_at {
            while self.town.left() > left {
                tokio::time::sleep(Duration::from_millis(7)).await;
                // Without clients, nothing would ever go on.
                if let Some(ended) = clients.try_join_next() {
                    pass_on(ended);
                }
            }
            let moment = self.rng.u64(..60);
            tokio::time::sleep(Duration::from_millis(moment)).await;
        } else {
            while let Some(ended) = clients.join_next().await {
                pass_on(ended);
            }
            upkeep.abort_all();
            while let Some(ended) = upkeep.join_next().await {
                pass_on(ended);
            }
            self.finish(&life).await;
        }
        while let Some(ended) = clients.try_join_next().or_else(|| upkeep.try_join_next()) {
            pass_on(ended);
        }
        self.sky.set();
    }

    async fn start(&self) -> Life {
        let truth = self.world.open_catalog(Mode::Inline).expect("a catalog");
        let journal = self.journal.clone();
        let distant = Arc::new(Distant { inner: truth.clone(), storm: self.storm.clone(), journal });
        self.storm.rage(false);
        let watched = |inner: SharedBackend| {
            let (truth, crimes, storm) = (truth.clone(), self.crimes.clone(), self.storm.clone());
            Arc::new(Watched { inner, truth, crimes, storm }) as SharedBackend
        };
        let backends = self.world.backends().into_iter().map(watched).collect();
        let process = Process::start(&self.world, distant, backends).await.expect("a start");
        let left_intents = intents(truth.as_ref()).await;
        Life { process, truth, left_intents }
    }

    /// The workers come before the clients: whoever was cut off is dealt with before anybody else
    /// changes the same keys.
    async fn recover_in_peace(&self, life: &Life) {
        life.process.identity.attach().await;
        for worker in &life.process.workers {
            tick_and_tell(worker.as_ref(), &self.journal).await;
        }
    }

    async fn set_up(&self, life: &Life) {
        if life.process.engine.bucket(&bucket()).await.is_ok() {
            return;
        }
        assert!(life.process.identity.attach().await, "attached");
        life.process.engine.create_bucket(&bucket()).await.expect("a bucket");
        if self.town.has_big {
            let bytes = bytes::Bytes::from(vec![7; usize::try_from(PART_BYTES_MIN).expect("small")]);
            let put = PutObject {
                bucket: bucket(),
                key: object_key(BIG),
                size_bytes: PART_BYTES_MIN,
                body: s3o_backend::body::whole(bytes.clone()),
                declared: Declared::default(),
                attributes: Attributes::default(),
                condition: WriteCondition::None,
                expiry: None,
            };
            life.process.engine.put_object(put).await.expect("stored");
            let mut ledger = self.town.ledger();
            let body = ledger.bodies.learn_whole(bytes);
            let write = ledger.write(BIG, Write::of(Some(body), Condition::Always));
            ledger.answered(write, |_, _| true);
        }
    }

    /// What runs by itself: leases, attachment, the workers, the weather.
    fn spawn_upkeep(&mut self, life: &Life) -> JoinSet<()> {
        let mut upkeep = JoinSet::new();
        let engine = life.process.engine.clone();
        upkeep.spawn(async move { engine.keep_leases().await });
        upkeep.spawn(attach_until_all(life.process.identity.clone()));
        for worker in &life.process.workers {
            upkeep.spawn(tick_by_chance(worker.clone(), self.rng.fork(), self.journal.clone()));
        }
        let (catalog, ids) = (life.process.catalog.clone(), life.process.ids().clone());
        upkeep.spawn(expire_elsewhere(catalog, ids, self.rng.fork(), self.journal.clone()));
        let sites = self.world.sites.clone();
        let jumps = if self.storm.far_jumps { Duration::MAX } else { JUMPS_MAX };
        let weather = Changes { sky: self.sky.clone(), sites, journal: self.journal.clone(), jumps };
        upkeep.spawn(weather.go_on(self.rng.fork()));
        upkeep
    }

    fn spawn_clients(&self, life: &Life) -> JoinSet<()> {
        let client = |memory: &Arc<Mutex<Memory>>| Client {
            town: self.town.clone(),
            memory: memory.clone(),
            engine: life.process.engine.clone(),
        };
        self.clients.iter().map(|memory| client(memory).work()).collect()
    }

    async fn check_now(&self, life: &Life) {
        let broken = broken_now(&life.truth, &self.world).await;
        assert!(broken.is_empty(), "{broken:#?}");
        self.check_crimes();
    }

    fn check_crimes(&self) {
        let crimes = self.crimes.all();
        assert!(crimes.is_empty(), "{crimes:#?}");
    }

    /// Faults stop, the workers run until nothing is owed, and everything is held against the ledger.
    async fn finish(&self, life: &Life) {
        self.journal.tell(format_args!("faults end"));
        self.storm.rage(false);
        for site in &self.world.sites {
            site.flaky.clear();
        }
        let engine = &life.process.engine;
        engine.tasks().drained().await;
        while !engine.finish_leftovers().await {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.check_counters(life).await;
        self.town.ledger().lose_all();
        while !life.process.identity.attach().await {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.abort_uploads(life).await;
        self.settle(life).await;
        for site in &self.world.sites {
            site.flaky.land_all().await;
        }
        let broken = broken_at_rest(&life.truth, &self.world).await;
        assert!(broken.is_empty(), "{broken:#?}");
        self.check_crimes();
        self.check_counters(life).await;
        self.count_shared(life).await;
        for key in SMALL.into_iter().chain(HUGE) {
            self.check_key(life, key).await;
        }
    }

    /// Every intent that was there or was added has been counted as resolved once, or its row is still there.
    async fn check_counters(&self, life: &Life) {
        let (enqueued, resolved) = life.process.metrics.totals();
        let open = intents(life.truth.as_ref()).await;
        assert_eq!(life.left_intents + enqueued, resolved + open, "{} left, {enqueued} announced", life.left_intents);
    }

    /// Counts content that is kept once for several.
    async fn count_shared(&self, life: &Life) {
        const SHARED: &str = "SELECT id FROM contents WHERE dedup_bucket IS NOT NULL AND ref_count > 1";
        let query = Statement::new(SHARED, vec![]);
        for _ in life.truth.read(query).await.expect("a query") {
            self.journal.count("content kept once");
        }
    }

    async fn abort_uploads(&self, life: &Life) {
        let engine = &life.process.engine;
        let query = UploadsQuery { limit: 1000, ..UploadsQuery::default() };
        for upload in engine.list_uploads(&bucket(), query).await.expect("uploads").uploads {
            let target = UploadRef { bucket: bucket(), key: upload.key, upload: upload.id };
            engine.abort_upload(&target).await.expect("aborted");
        }
    }

    async fn settle(&self, life: &Life) {
        for _ in 0..60 {
            tick_all(&life.process.workers).await;
            if is_at_rest(life.truth.as_ref()).await {
                return;
            }
            self.sky.jump(Duration::from_mins(10));
        }
        panic!("work is left when faults have long ended");
    }

    async fn check_key(&self, life: &Life, key: &'static str) {
        let get = get_request(key, Wanted::Whole);
        let request = self.town.ledger().read(key);
        let bytes = match life.process.engine.get_object(get).await {
            Ok(opened) => {
                let chunks: Vec<_> = opened.body.map(|chunk| chunk.expect("a chunk")).collect().await;
                Some(chunks.concat())
            }
            Err(Error::NoSuchKey) => None,
            Err(error) => panic!("{key}: {error}"),
        };
        let fits = |bodies: &Bodies, value: Value| value.map(|body| bodies.bytes(body).as_ref()) == bytes.as_deref();
        self.town.ledger().answered(request, fits);
    }
}

/// How many intents there are.
async fn intents(truth: &dyn Driver) -> u64 {
    let query = Statement::new("SELECT count(*) FROM pending_objects", vec![]);
    truth.read(query).await.expect("a query")[0].size(0).expect("a number")
}

/// A panic in a task is a panic of the run.
fn pass_on(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}
