//! Fixtures of a seed, and the checks at the start of every process and at the end of the seed.

use std::time::Duration;

use s3o_catalog::{Error as CatalogError, Verdict};
use s3o_engine::PutObject;
use s3o_model::multipart::PART_BYTES_MIN;
use s3o_tests::harness::bucket;
use s3o_tests::invariants::{is_settled, tick_all, violations_when_settled};

use crate::bodies::Bodies;
use crate::ledger::{BIG, HUGE, SMALL};
use crate::model::{KeyContent, ModelCondition, ModelWrite};
use crate::run::{SimulatedProcess, Simulation};

impl Simulation {
    /// Creates the bucket and, where the seed has one, the object that large parts are copied from.
    pub(super) async fn create_fixtures(&self, process: &SimulatedProcess) {
        if process.engine.bucket(&bucket()).await.is_ok() {
            return;
        }
        assert!(process.process.identity.attach().await, "attached");
        process.engine.create_bucket(&bucket()).await.expect("created");
        if self.context.has_big {
            let bytes = bytes::Bytes::from(vec![7; usize::try_from(PART_BYTES_MIN).expect("fits")]);
            let body = s3o_backend::body::whole(bytes.clone());
            let put = PutObject { body, ..process.put(BIG, &bytes, &std::sync::Arc::new(())) };
            process.engine.put_object(put).await.expect("stored");
            let mut ledger = self.context.ledger();
            let body = ledger.bodies.learn_whole(bytes);
            let write = ledger.write(BIG, ModelWrite::of(Some(body), ModelCondition::Always));
            ledger.answered(write, |_, _| true);
        }
    }

    pub(super) async fn check_now(&self, process: &SimulatedProcess) {
        process.check_now().await;
        self.check_illegal_deletes();
    }

    /// Ends all drains and unhealthy states, and sets the configured factor, so that every content gets its copies.
    async fn restore_copies(&self, process: &SimulatedProcess) {
        for backend in &self.environment.backends {
            match process.catalog.stop_drain(&backend.name()).await {
                Err(CatalogError::Guard(Verdict::Closed)) if self.context.writes_off => continue,
                stopped => stopped.expect("stopped"),
            }
            match process.catalog.end_unhealthy(&backend.name()).await {
                Ok(()) | Err(CatalogError::Guard(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        process.catalog.set_factors(self.environment.settings.copies, &[]).await.expect("set");
    }

    fn check_illegal_deletes(&self) {
        let illegal = self.illegal_deletes.all();
        assert!(illegal.is_empty(), "{illegal:#?}");
    }

    /// Ends faults, runs the workers until no row is waiting, and compares every key with the ledger.
    pub(super) async fn finish(&self, process: &SimulatedProcess, left_intents: u64) {
        self.journal.record(format_args!("faults end"));
        self.schedule.set_active(false);
        for backend in &self.environment.backends {
            backend.flaky.clear();
        }
        process.engine.tasks().drained().await;
        while !process.engine.retry_unanswered().await {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.finish_write_off(process).await;
        self.restore_copies(process).await;
        self.check_counters(process, left_intents).await;
        self.context.ledger().lose_all();
        while !process.process.identity.attach().await {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        process.abort_open_uploads().await;
        self.settle(process).await;
        for backend in &self.environment.backends {
            backend.flaky.store_late_writes().await;
        }
        let broken = violations_when_settled(&process.driver, &self.environment.backends).await;
        assert!(broken.is_empty(), "{broken:#?}");
        self.check_illegal_deletes();
        self.check_counters(process, left_intents).await;
        self.count_shared(process).await;
        for key in SMALL.into_iter().chain(HUGE) {
            self.check_key(process, key).await;
        }
    }

    /// Asserts that every intent, left by the process before or added by this one, was counted as resolved exactly
    /// once, or still has its row, or was written off.
    async fn check_counters(&self, process: &SimulatedProcess, left_intents: u64) {
        let (enqueued, resolved) = process.process.metrics.totals();
        let open = self.count_intents(process).await;
        let (known, settled) = (left_intents + enqueued, resolved + open);
        let written_off = self.written_off_intents(process).await;
        assert!(
            (settled..=settled + written_off).contains(&known),
            "{left_intents} left, {enqueued} announced, {resolved} resolved, {open} open, {written_off} written off"
        );
    }

    pub(super) async fn count_intents(&self, process: &SimulatedProcess) -> u64 {
        process.rows("SELECT count(DISTINCT write_id) AS n FROM pending_objects").await[0].size("n").expect("a number")
    }

    /// Counts contents that several objects share.
    async fn count_shared(&self, process: &SimulatedProcess) {
        const SHARED: &str = "SELECT id FROM contents WHERE dedup_bucket IS NOT NULL AND ref_count > 1";
        for _ in process.rows(SHARED).await {
            self.journal.count("content kept once");
        }
    }

    async fn settle(&self, process: &SimulatedProcess) {
        for _ in 0..60 {
            tick_all(&process.process.workers).await;
            if is_settled(process.driver.as_ref()).await {
                return;
            }
            self.environment.clock.jump(Duration::from_mins(10));
        }
        panic!("rows are waiting for work hours after the last fault");
    }

    async fn check_key(&self, process: &SimulatedProcess, key: &'static str) {
        let request = self.context.ledger().read(key);
        if let Some(etag) = self.lost_etag(process, key).await {
            let mut ledger = self.context.ledger();
            let body = ledger.known(&etag);
            ledger.answered(request, |_, value| value == Some(body));
            return;
        }
        let bytes = process.read(key).await;
        let fits =
            |bodies: &Bodies, value: KeyContent| value.map(|body| bodies.bytes(body).as_ref()) == bytes.as_deref();
        self.context.ledger().answered(request, fits);
    }
}
