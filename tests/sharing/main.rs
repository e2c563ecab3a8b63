//! Uploads of a content race the last deletion of the same content, ten thousand times: what was acknowledged is read,
//! byte for byte, and in the end nothing is left that nobody refers to.
//!
//! The real engine and workers over real catalogs: SQLite with one instance, PostgreSQL with two.

mod house;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::house::{House, Write};

const ROUNDS: usize = 10_000;
/// Rounds go on side by side, each lane on a content of its own.
const LANES: usize = 16;
/// At least so many rounds must have met condemned content, and as many content that lived.
const MET_MIN: usize = 1_000;

/// When the delete begins.
enum Begin {
    /// With the write.
    Together,
    /// When the write is announced and its body is asked for.
    WithTheBody,
    /// At some moment of the write.
    After(Duration),
}

/// One lane: a content that is written again and again under new keys, while its last key is deleted.
struct Lane {
    number: usize,
    body: Vec<u8>,
    rng: Rng,
    /// How long a write takes, to let the delete begin at any moment of the next.
    pace: Duration,
}

impl Lane {
    fn new(number: usize) -> Self {
        let body = format!("the content of lane {number}; ").repeat(9).into_bytes();
        Self { number, body, rng: Rng::with_seed(number as u64), pace: Duration::from_millis(2) }
    }

    fn key(&self, round: usize) -> String {
        format!("{}/{round}", self.number)
    }

    fn begin(&mut self) -> Begin {
        match self.rng.u8(..4) {
            0 => Begin::Together,
            1 | 2 => Begin::WithTheBody,
            _ => Begin::After(self.pace.mul_f64(self.rng.f64())),
        }
    }

    async fn run(mut self, house: Arc<House>) {
        let first = Write { announced: false, body_asked: Arc::default() };
        house.put(0, &self.key(0), &self.body, first).await;
        for round in 1..=ROUNDS / LANES {
            self.race(&house, round).await;
        }
        house.delete(0, &self.key(ROUNDS / LANES)).await;
    }

    async fn race(&mut self, house: &House, round: usize) {
        let (old, new, when) = (self.key(round - 1), self.key(round), self.begin());
        let body_asked = Arc::new(Notify::new());
        // What is held cannot be met condemned.
        let write = Write { announced: self.rng.u8(..4) == 0, body_asked: body_asked.clone() };
        let write = async {
            let start = Instant::now();
            house.put(round, &new, &self.body, write).await;
            start.elapsed()
        };
        let delete = async {
            match when {
                Begin::Together => {}
                Begin::WithTheBody => body_asked.notified().await,
                Begin::After(time) => sleep(time).await,
            }
            house.delete(round + 1, &old).await;
        };
        let (took, ()) = tokio::join!(write, delete);
        self.pace = (self.pace * 3 + took) / 4;
        assert_eq!(house.read(round, &new).await, self.body, "{new}");
    }
}

async fn ten_thousand_rounds(house: House) {
    let (house, start) = (Arc::new(house), Instant::now());
    let upkeep = tokio::spawn(house.clone().keep_clean());
    let lanes: Vec<_> = (0..LANES).map(|number| tokio::spawn(Lane::new(number).run(house.clone()))).collect();
    for lane in lanes {
        lane.await.expect("no round fails");
    }
    upkeep.abort();
    assert!(upkeep.await.is_err_and(|ended| ended.is_cancelled()), "the workers worked");
    let ((made, met), took) = (house.seen(), start.elapsed());
    // Every lane began with content of its own; whoever made it since had met condemned content.
    let (fresh, joined) = (made - LANES, ROUNDS + LANES - made);
    println!("{ROUNDS} rounds in {took:?}: {fresh} met condemned content, {joined} joined content that lived");
    println!("content was made or condemned under the hands of a write {met} times");
    house.is_empty_at_rest().await;
    assert!(fresh >= MET_MIN && joined >= MET_MIN, "{fresh} and {joined}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uploads_race_the_last_deletion_on_sqlite() {
    ten_thousand_rounds(House::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn uploads_race_the_last_deletion_on_postgres_with_two_instances() {
    ten_thousand_rounds(House::on_postgres().await).await;
}
