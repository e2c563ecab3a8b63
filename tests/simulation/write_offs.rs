//! The write-off of the first backend, beside writes, deletes and copies: what no other backend has is lost, and
//! nothing else.

use std::time::Duration;

use fastrand::Rng;
use s3o_model::etag::ETag;
use s3o_model::names::BackendName;
use s3o_workers::{DrainProgress, RetirementRefused, RetirementService};

use crate::journal::Journal;
use crate::run::{SimulatedProcess, Simulation};

/// Attempts at the end of a seed: writes that have not ended hold it up until their leases end.
const ATTEMPTS_MAX: usize = 20;

/// Objects with lost content, or with a lost piece.
const LOST: &str = "SELECT o.key, o.etag FROM objects o WHERE EXISTS (SELECT 1 FROM contents c WHERE c.kind = 'whole' \
     AND (c.id = o.content_id OR c.id IN (SELECT whole_id FROM content_parts WHERE joined_id = o.content_id)) \
     AND NOT EXISTS (SELECT 1 FROM object_locations l WHERE l.content_id = c.id AND l.state <> 'lost'))";

const WRITTEN_OFF_INTENTS: &str = "SELECT detail FROM findings WHERE kind = 'written_off_intents'";

/// A write-off that is repeated until it ends.
pub struct WriteOff {
    service: RetirementService,
    name: BackendName,
    journal: Journal,
}

impl WriteOff {
    /// Of the first backend: the others have capacity for all copies.
    pub fn of(simulation: &Simulation, process: &SimulatedProcess) -> Self {
        let parts = &process.process;
        let service = RetirementService {
            catalog: parts.catalog.clone(),
            fleet: parts.fleet.clone(),
            identity: parts.identity.clone(),
            progress: DrainProgress::default(),
            drain_wakeup: std::sync::Arc::default(),
            clock: simulation.environment.clock.clone(),
        };
        Self { service, name: simulation.environment.backends[0].name(), journal: simulation.journal.clone() }
    }

    /// Begins at a random moment and repeats what failed.
    pub async fn run(self, mut rng: Rng) {
        tokio::time::sleep(Duration::from_millis(rng.u64(200..8_000))).await;
        while !self.attempt().await {
            tokio::time::sleep(Duration::from_millis(rng.u64(100..3_000))).await;
        }
    }

    /// False if it must be repeated.
    async fn attempt(&self) -> bool {
        let answer = self.service.write_off(self.name.as_str()).await;
        self.journal.record(format_args!("write-off of {}: {answer:?}", self.name));
        match answer {
            Ok(totals) => {
                self.journal.count("backend written off");
                for total in totals {
                    self.journal.count(&total.kind);
                }
                true
            }
            Err(RetirementRefused::Removed) => true,
            Err(RetirementRefused::WritesUnderWay(_)) => {
                self.journal.count("write-off waits for writes");
                false
            }
            Err(_) => false,
        }
    }
}

impl Simulation {
    /// Ends a write-off that a crash or a fault interrupted.
    pub(super) async fn finish_write_off(&self, process: &SimulatedProcess) {
        if !self.context.writes_off {
            return;
        }
        let write_off = WriteOff::of(self, process);
        for _ in 0..ATTEMPTS_MAX {
            if write_off.attempt().await {
                return;
            }
            self.environment.clock.jump(Duration::from_mins(10));
        }
        panic!("the write-off does not end");
    }

    /// The ETag of an object whose bytes are lost.
    pub(super) async fn lost_etag(&self, process: &SimulatedProcess, key: &str) -> Option<ETag> {
        let rows = process.rows(LOST).await;
        let row = rows.iter().find(|row| row.text("key").is_ok_and(|found| found == key))?;
        self.journal.count("objects lost");
        Some(ETag::from_text(row.text("etag").expect("an ETag")))
    }

    /// Number of intents that were written off: no counter has their outcome.
    pub(super) async fn written_off_intents(&self, process: &SimulatedProcess) -> u64 {
        let details = process.texts(WRITTEN_OFF_INTENTS).await;
        let count = |detail: &String| serde_json::from_str::<serde_json::Value>(detail).ok()?["count"].as_u64();
        details.iter().filter_map(count).sum()
    }
}
