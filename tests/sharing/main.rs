//! Uploads of a content race the deletion of its last reference, ten thousand times: every acknowledged object is
//! readable byte for byte, and in the end neither rows nor bytes are left.
//!
//! The real engine and workers over real catalogs: SQLite with one instance, PostgreSQL with two.

mod instances;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::instances::{Instances, RaceUpload};

const ROUNDS: usize = 10_000;
/// Lanes run concurrently, each with a content of its own.
const LANES: usize = 16;
/// Minimum number of rounds that found the content condemned, and of rounds that found it live.
const ROUNDS_OF_EACH_KIND_MIN: usize = 1_000;

/// When the delete of the old key starts, relative to the write of the new one.
enum DeleteStart {
    WithRequest,
    /// When the server asks for the body.
    WithBody,
    After(Duration),
}

/// Writes one content under new keys again and again, and deletes the key of the round before.
struct RaceLane {
    number: usize,
    body: Vec<u8>,
    rng: Rng,
    /// Moving average of the duration of a write: the delete starts within it.
    write_duration: Duration,
}

impl RaceLane {
    fn new(number: usize) -> Self {
        let body = format!("the content of lane {number}; ").repeat(9).into_bytes();
        Self { number, body, rng: Rng::with_seed(number as u64), write_duration: Duration::from_millis(2) }
    }

    fn key(&self, round: usize) -> String {
        format!("{}/{round}", self.number)
    }

    fn delete_start(&mut self) -> DeleteStart {
        match self.rng.u8(..4) {
            0 => DeleteStart::WithRequest,
            1 | 2 => DeleteStart::WithBody,
            _ => DeleteStart::After(self.write_duration.mul_f64(self.rng.f64())),
        }
    }

    async fn run(mut self, instances: Arc<Instances>) {
        let first = RaceUpload { declares_digest: false, body_requested: Arc::default() };
        instances.put(0, &self.key(0), &self.body, first).await;
        for round in 1..=ROUNDS / LANES {
            self.race(&instances, round).await;
        }
        instances.delete(0, &self.key(ROUNDS / LANES)).await;
    }

    async fn race(&mut self, instances: &Instances, round: usize) {
        let (old, new, start) = (self.key(round - 1), self.key(round), self.delete_start());
        let body_requested = Arc::new(Notify::new());
        // A declared digest pins the content, which then cannot be condemned; so most uploads declare none.
        let upload = RaceUpload { declares_digest: self.rng.u8(..4) == 0, body_requested: body_requested.clone() };
        let write = async {
            let began = Instant::now();
            instances.put(round, &new, &self.body, upload).await;
            began.elapsed()
        };
        let delete = async {
            match start {
                DeleteStart::WithRequest => {}
                DeleteStart::WithBody => body_requested.notified().await,
                DeleteStart::After(time) => sleep(time).await,
            }
            instances.delete(round + 1, &old).await;
        };
        let (took, ()) = tokio::join!(write, delete);
        self.write_duration = (self.write_duration * 3 + took) / 4;
        assert_eq!(instances.read(round, &new).await, self.body, "{new}");
    }
}

async fn ten_thousand_rounds(instances: Instances) {
    let (instances, began) = (Arc::new(instances), Instant::now());
    let workers = tokio::spawn(instances.clone().keep_clean());
    let lanes: Vec<_> = (0..LANES).map(|number| tokio::spawn(RaceLane::new(number).run(instances.clone()))).collect();
    for lane in lanes {
        lane.await.expect("no round fails");
    }
    instances.stop_cleaning();
    workers.await.expect("the workers did not panic");
    let ((created, conflicts), took) = (instances.counts(), began.elapsed());
    // Every lane creates its content once; each further creation found the content condemned.
    let (condemned, live) = (created - LANES, ROUNDS + LANES - created);
    println!("{ROUNDS} rounds in {took:?}: {condemned} found the content condemned, {live} found it live");
    println!("{conflicts} units conflicted with another unit on the same content");
    instances.check_empty().await;
    assert!(condemned >= ROUNDS_OF_EACH_KIND_MIN && live >= ROUNDS_OF_EACH_KIND_MIN, "{condemned} and {live}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uploads_race_the_last_deletion_on_sqlite() {
    ten_thousand_rounds(Instances::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uploads_race_the_last_deletion_on_postgres_with_two_instances() {
    ten_thousand_rounds(Instances::on_postgres().await).await;
}
