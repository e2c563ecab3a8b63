//! Tasks that run beside the clients: worker ticks, outages of backends, jumps of the clock.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use s3o_catalog::{Acceptance, Catalog, Error as CatalogError, PlannedMark, UnhealthyRule, Verdict};
use s3o_model::clock::Timestamp;
use s3o_model::ids::{ClaimToken, IdSource, InstanceId};
use s3o_model::names::BackendName;
use s3o_tests::environment::TestBackend;
use s3o_tests::invariants::tick;
use s3o_workers::{ExpiryWorker, IdentityWorker, Report, Worker};

use crate::clock::SimulatedClock;
use crate::journal::Journal;

/// Retries until every backend is attached.
pub async fn attach_until_all(identity: Arc<IdentityWorker>) {
    while !identity.attach().await {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Ticks a worker at random intervals. Some ticks are cancelled, as the runner does at shutdown.
pub async fn tick_at_random(worker: Arc<dyn Worker>, mut rng: Rng, journal: Journal) {
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(50..900))).await;
        if rng.u8(..20) == 0 {
            let mut report = Report::default();
            let timeout = Duration::from_millis(rng.u64(..40));
            let ended = tokio::time::timeout(timeout, tick(worker.as_ref(), &mut report)).await;
            journal.count(if ended.is_ok() { "ticks" } else { "ticks dropped" });
            record_report(worker.as_ref(), &report, &journal);
        } else {
            tick_and_record(worker.as_ref(), &journal).await;
        }
    }
}

/// Expiry workers of other instances: each claims a few objects; some are slow, some die with their claim.
pub async fn expire_elsewhere(catalog: Arc<Catalog>, ids: IdSource, mut rng: Rng, journal: Journal) {
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(20..700))).await;
        let batch = rng.usize(1..4);
        if rng.bool() {
            let worker = ExpiryWorker::new(catalog.clone(), ids.clone(), batch, Arc::default());
            tick_and_record(&worker, &journal).await;
            continue;
        }
        let token = ClaimToken::new(ids.fresh());
        let claimed = catalog.claim_expiries(token, batch).await.is_ok_and(|claimed| claimed > 0);
        let pause = Duration::from_millis(rng.u64(1..2_000));
        if claimed && rng.bool() {
            journal.count("expiry worker died");
        } else if claimed {
            tokio::time::sleep(pause).await;
            let removed = catalog.remove_claimed(token).await;
            journal.count("expiry worker was slow");
            journal.record(format_args!("slow expiry worker removed {removed:?}"));
        }
    }
}

/// Drains that start and stop, backends that become unhealthy and recover, or are accepted, and factors that change.
pub async fn change_copies(
    catalog: Arc<Catalog>,
    instance: InstanceId,
    names: Vec<BackendName>,
    mut rng: Rng,
    journal: Journal,
) {
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(100..3_000))).await;
        let name = &names[rng.usize(..names.len())];
        let (what, changed) = match rng.u8(..7) {
            0 => ("factor changed", catalog.set_factors(rng.usize(1..=2), &[]).await.is_ok_and(|changed| changed)),
            1 => ("drain started", catalog.start_drain(name, &names).await.is_ok()),
            2 => ("unhealthy began", begin_unhealthy(&catalog, instance, name, &names).await.is_ok()),
            3 => ("unhealthy ended", catalog.end_unhealthy(name).await.is_ok()),
            4 => ("backend accepted", accept(&catalog, name, rng.u64(..)).await.is_ok()),
            _ => ("drain stopped", catalog.stop_drain(name).await.is_ok()),
        };
        if changed {
            journal.count(what);
            journal.record(format_args!("{what}: {name}"));
        }
    }
}

/// The only instance has been unable to use the backend for an hour.
async fn begin_unhealthy(
    catalog: &Catalog,
    instance: InstanceId,
    name: &BackendName,
    names: &[BackendName],
) -> Result<(), CatalogError> {
    catalog.record_view(instance, name, Some(Duration::from_hours(1))).await?;
    let rule = UnhealthyRule { after: Duration::from_mins(10), answer_wait: Duration::ZERO };
    let began = catalog.begin_unhealthy(name, names, rule).await;
    catalog.close_view(instance, name).await?;
    began
}

/// Another instance accepts the backend as it is, and dies before it writes the mark: the copies there do not count
/// until they are found again.
async fn accept(catalog: &Catalog, name: &BackendName, mark: u64) -> Result<(), CatalogError> {
    let known = catalog.known_backend(name).await?;
    if known.removed {
        return Err(CatalogError::Guard(Verdict::Closed));
    }
    let sequence = known.mark_sequence.max(known.next_sequence) + 1;
    let next = PlannedMark { mark: format!("accepted-{mark}"), sequence };
    let upto = Timestamp::from_millis(0);
    catalog.accept_mark(name, Acceptance { expected: &known, hash: "found", next: &next, upto }).await
}

/// Runs one tick and records its report.
pub async fn tick_and_record(worker: &dyn Worker, journal: &Journal) {
    let mut report = Report::default();
    let ended = tick(worker, &mut report).await;
    journal.count(if ended { "ticks" } else { "ticks failed" });
    record_report(worker, &report, journal);
}

fn record_report(worker: &dyn Worker, report: &Report, journal: &Journal) {
    for (outcome, items) in &report.items {
        journal.record(format_args!("{}: {items} {outcome}", worker.name()));
        journal.count(&format!("{} {outcome}", worker.name()));
    }
}

/// Outages of backends and jumps of the clock.
pub struct EnvironmentChanges {
    pub clock: Arc<SimulatedClock>,
    pub backends: Vec<TestBackend>,
    pub journal: Journal,
    /// How far the clock may still jump ahead in this process.
    pub jumps: Duration,
}

impl EnvironmentChanges {
    /// Runs until it is dropped.
    pub async fn run(mut self, mut rng: Rng) {
        loop {
            tokio::time::sleep(Duration::from_millis(rng.u64(100..4_000))).await;
            match rng.u8(..4) {
                0 => self.interrupt_backend(&mut rng).await,
                1 => self.jump_ahead(&mut rng),
                2 => {
                    let back = Duration::from_secs(rng.u64(1..30));
                    self.journal.count("fault clock back");
                    self.journal.record(format_args!("the clock jumps back by {back:?}"));
                    self.clock.jump_back(back);
                }
                _ => {}
            }
        }
    }

    async fn interrupt_backend(&self, rng: &mut Rng) {
        let backend = &self.backends[rng.usize(..self.backends.len())];
        self.journal.count("fault backend away");
        self.journal.record(format_args!("{} is unreachable", backend.name()));
        backend.flaky.go_away();
        tokio::time::sleep(Duration::from_millis(rng.u64(50..3_000))).await;
        backend.flaky.come_back();
        self.journal.record(format_args!("{} is reachable", backend.name()));
    }

    fn jump_ahead(&mut self, rng: &mut Rng) {
        let seconds = if rng.bool() { rng.u64(1..600) } else { rng.u64(600..7200) };
        let ahead = Duration::from_secs(seconds).min(self.jumps);
        self.jumps -= ahead;
        self.journal.count("fault clock ahead");
        self.journal.record(format_args!("the clock jumps ahead by {ahead:?}"));
        self.clock.jump(ahead);
    }
}
