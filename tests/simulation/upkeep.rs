//! What goes on beside the clients: the workers tick, backends go away, the clock jumps.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use s3o_catalog::{Catalog, Expiries as _};
use s3o_model::ids::{ClaimToken, IdSource};
use s3o_tests::rest::tick;
use s3o_tests::world::Site;
use s3o_workers::{Expiry, Identity, Report, Worker};

use crate::journal::Journal;
use crate::sky::Sky;

/// Reaches the backends, however often it takes.
pub async fn attach_until_all(identity: Arc<Identity>) {
    while !identity.attach().await {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Ticks a worker now and then; some ticks are dropped where they stand, as the runner may do.
pub async fn tick_by_chance(worker: Arc<dyn Worker>, mut rng: Rng, journal: Journal) {
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(50..900))).await;
        if rng.u8(..20) == 0 {
            let mut report = Report::default();
            let patience = Duration::from_millis(rng.u64(..40));
            let ended = tokio::time::timeout(patience, tick(worker.as_ref(), &mut report)).await;
            journal.count(if ended.is_ok() { "ticks" } else { "ticks dropped" });
            tell(worker.as_ref(), &report, &journal);
        } else {
            tick_and_tell(worker.as_ref(), &journal).await;
        }
    }
}

/// Workers of other instances: each claims a little of what has expired; some are slow, some die over it.
pub async fn expire_elsewhere(catalog: Arc<Catalog>, ids: IdSource, mut rng: Rng, journal: Journal) {
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(20..700))).await;
        let batch = rng.usize(1..4);
        if rng.bool() {
            let worker = Expiry::new(catalog.clone(), ids.clone(), batch, Arc::default());
            tick_and_tell(&worker, &journal).await;
            continue;
        }
        let token = ClaimToken::new(ids.fresh());
        let claimed = catalog.claim_expiries(token, batch).await.is_ok_and(|claimed| claimed > 0);
        let pause = Duration::from_millis(rng.u64(1..2_000));
        if claimed && rng.bool() {
            journal.count("expiry worker died");
        } else if claimed {
            tokio::time::sleep(pause).await;
            let gone = catalog.remove_claimed(token).await;
            journal.count("expiry worker was slow");
            journal.tell(format_args!("a slow expiry worker: {gone:?}"));
        }
    }
}

/// One tick, and what it did.
pub async fn tick_and_tell(worker: &dyn Worker, journal: &Journal) {
    let mut report = Report::default();
    let ended = tick(worker, &mut report).await;
    journal.count(if ended { "ticks" } else { "ticks failed" });
    tell(worker, &report, journal);
}

fn tell(worker: &dyn Worker, report: &Report, journal: &Journal) {
    for (outcome, items) in &report.items {
        journal.tell(format_args!("{}: {items} {outcome}", worker.name()));
        journal.count(&format!("{} {outcome}", worker.name()));
    }
}

/// Backends go away and come back; the clock jumps.
pub struct Changes {
    pub sky: Arc<Sky>,
    pub sites: Vec<Site>,
    pub journal: Journal,
    /// How far the clock may still jump ahead in this life.
    pub jumps: Duration,
}

impl Changes {
    /// Goes on for as long as it is polled.
    pub async fn go_on(mut self, mut rng: Rng) {
        loop {
            tokio::time::sleep(Duration::from_millis(rng.u64(100..4_000))).await;
            match rng.u8(..4) {
                0 => self.take_away(&mut rng).await,
                1 => self.jump_ahead(&mut rng),
                2 => {
                    let back = Duration::from_secs(rng.u64(1..30));
                    self.journal.count("fault clock back");
                    self.journal.tell(format_args!("the clock jumps back by {back:?}"));
                    self.sky.jump_back(back);
                }
                _ => {}
            }
        }
    }

    async fn take_away(&self, rng: &mut Rng) {
        let site = &self.sites[rng.usize(..self.sites.len())];
        self.journal.count("fault backend away");
        self.journal.tell(format_args!("{} goes away", site.name()));
        site.flaky.go_away();
        tokio::time::sleep(Duration::from_millis(rng.u64(50..3_000))).await;
        site.flaky.come_back();
        self.journal.tell(format_args!("{} is back", site.name()));
    }

    fn jump_ahead(&mut self, rng: &mut Rng) {
        let seconds = if rng.bool() { rng.u64(1..600) } else { rng.u64(600..7200) };
        let ahead = Duration::from_secs(seconds).min(self.jumps);
        self.jumps -= ahead;
        self.journal.count("fault clock ahead");
        self.journal.tell(format_args!("the clock jumps ahead by {ahead:?}"));
        self.sky.jump(ahead);
    }
}
