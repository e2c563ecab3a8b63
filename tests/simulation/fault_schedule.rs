//! The fault schedule of a simulation: which call fails, and how. Every injected kind is counted, and a shard of seeds
//! in which one kind never occurs fails.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use s3o_backend::layers::{Fault, FaultPlan};

use crate::journal::Journal;

/// Every kind of fault that must occur in each shard.
pub const FAULT_KINDS: [&str; 18] = [
    "fault before",
    "fault after",
    "fault slow",
    "fault hang",
    "fault refused",
    "fault unknown",
    "fault late write",
    "fault cut",
    "fault partial batch",
    "fault wrong 404",
    "fault backend away",
    "fault catalog away",
    "fault catalog answer lost",
    "fault catalog unit lost",
    "fault client gone",
    "fault clock ahead",
    "fault clock back",
    "fault crash",
];

/// No call hangs longer than any time-out of the product.
const HANG_SECONDS_MAX: u64 = 90;
/// A late write takes effect within a third of `late_write_window`.
const LATE_SECONDS_MAX: u64 = 1200;

/// A fault of one unit.
pub enum CatalogFault {
    /// Unreachable; the unit was not executed.
    Away,
    /// Committed, but the answer is lost.
    AnswerLost,
    /// Not committed, and the answer is lost.
    UnitLost,
}

/// Draws faults from the random numbers of the seed.
pub struct FaultSchedule {
    rng: Mutex<Rng>,
    active: AtomicBool,
    /// One of this many calls fails.
    calls_per_backend_fault: u64,
    calls_per_catalog_fault: u64,
    journal: Journal,
    /// Whether the clock may jump beyond `late_write_window`: bytes may be stored after cleanup probed their key for
    /// the last time, and the writer must queue them again, however often the catalog fails.
    pub far_jumps: bool,
}

impl FaultSchedule {
    /// Draws how often calls fail in this seed.
    pub fn new(mut rng: Rng, journal: Journal) -> Self {
        let calls_per_backend_fault = *rng.choice(&[6, 12, 30]).expect("some");
        let calls_per_catalog_fault = *rng.choice(&[60, 120, 400]).expect("some");
        let far_jumps = rng.u8(..4) == 0;
        let (rng, active) = (Mutex::new(rng), AtomicBool::new(false));
        Self { rng, active, calls_per_backend_fault, calls_per_catalog_fault, journal, far_jumps }
    }

    /// Starts or stops all faults.
    pub fn set_active(&self, active: bool) {
        self.active.store(active, Ordering::SeqCst);
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.lock())
    }

    fn is_due(&self, calls: u64) -> bool {
        self.active.load(Ordering::SeqCst) && self.draw(|rng| rng.u64(..calls)) == 0
    }

    /// Duration of one step; None, mostly, is no time.
    pub fn latency(&self) -> Option<Duration> {
        let millis = self.draw(|rng| if rng.u8(..3) == 0 { rng.u64(1..=12) } else { 0 });
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// The fault of the next unit, if it has one.
    pub fn catalog(&self) -> Option<CatalogFault> {
        if !self.is_due(self.calls_per_catalog_fault) {
            return None;
        }
        let (name, fault) = match self.draw(|rng| rng.u8(..3)) {
            0 => ("fault catalog away", CatalogFault::Away),
            1 => ("fault catalog answer lost", CatalogFault::AnswerLost),
            _ => ("fault catalog unit lost", CatalogFault::UnitLost),
        };
        self.journal.count(name);
        Some(fault)
    }

    fn backend_fault(&self, operation: &str) -> (&'static str, Fault) {
        let specific = match operation {
            "put" | "finish_upload" => 3,
            "put_part" | "get" | "probe" | "delete_batch" => 1,
            _ => 0,
        };
        let (pick, seconds) = self.draw(|rng| (rng.u8(..6 + specific), rng.u64(1..HANG_SECONDS_MAX)));
        match pick {
            0 => ("fault before", Fault::Before),
            1 => ("fault after", Fault::After),
            2 => ("fault slow", Fault::Delay(Duration::from_secs(seconds))),
            3 => ("fault hang", Fault::Hang(Duration::from_secs(seconds))),
            4 => ("fault refused", Fault::Refused),
            5 => ("fault unknown", Fault::Unknown),
            _ => match operation {
                "get" if seconds % 2 == 0 => ("fault cut", Fault::Cut(seconds % 5)),
                "put" if pick == 6 => ("fault cut", Fault::Cut(seconds % 5)),
                "put_part" => ("fault cut", Fault::Cut(seconds % 5)),
                "get" | "probe" => ("fault wrong 404", Fault::Wrong404),
                "delete_batch" => ("fault partial batch", Fault::PartialBatch),
                _ => {
                    ("fault late write", Fault::Late(Duration::from_secs(self.draw(|rng| rng.u64(..LATE_SECONDS_MAX)))))
                }
            },
        }
    }
}

impl FaultPlan for FaultSchedule {
    fn next_fault(&self, operation: &'static str, key: &str) -> Option<Fault> {
        if !self.is_due(self.calls_per_backend_fault) {
            return None;
        }
        let (name, fault) = self.backend_fault(operation);
        self.journal.count(name);
        self.journal.record(format_args!("  {operation} {key}: {fault:?}"));
        Some(fault)
    }
}
