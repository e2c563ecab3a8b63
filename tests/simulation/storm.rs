//! The weather of a simulation: which call fails, and how. Every kind that strikes is counted; a
//! run of many seeds in which one never struck has not tested it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;
use s3o_backend::layers::{Fault, Weather};

use crate::journal::Journal;

/// Every kind of trouble that must strike in each shard.
pub const KINDS: [&str; 18] = [
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

/// No call hangs longer: the patience of whoever waits is bounded.
const HANG_MAX: u64 = 90;
/// A write that lands late does so within a third of the window that the system allows for it.
const LATE_MAX: u64 = 1200;

/// What the catalog does with a unit.
pub enum CatalogFault {
    /// It is away; nothing was changed.
    Away,
    /// The unit was committed and the answer is lost.
    AnswerLost,
    /// The unit was not committed and the answer does not tell.
    UnitLost,
}

/// Trouble by chance.
pub struct Storm {
    chance: Mutex<Rng>,
    raging: AtomicBool,
    /// One call of so many fails.
    backend_calls: u64,
    catalog_calls: u64,
    journal: Journal,
    /// Whether the clock may jump further than a write may be late: bytes may land after everybody stopped looking,
    /// and whoever wrote them queues them again, however often the catalog fails.
    pub far_jumps: bool,
}

impl Storm {
    /// A storm of its own strength: some seeds are calm, some are not.
    pub fn new(mut rng: Rng, journal: Journal) -> Self {
        let backend_calls = *rng.choice(&[6, 12, 30]).expect("some");
        let catalog_calls = *rng.choice(&[60, 120, 400]).expect("some");
        let far_jumps = rng.u8(..4) == 0;
        let (chance, raging) = (Mutex::new(rng), AtomicBool::new(false));
        Self { chance, raging, backend_calls, catalog_calls, journal, far_jumps }
    }

    /// Begins or ends all faults.
    pub fn rage(&self, raging: bool) {
        self.raging.store(raging, Ordering::SeqCst);
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.chance.lock())
    }

    fn strikes(&self, calls: u64) -> bool {
        self.raging.load(Ordering::SeqCst) && self.draw(|rng| rng.u64(..calls)) == 0
    }

    /// How long a step takes: mostly no time at all.
    pub fn latency(&self) -> Option<Duration> {
        let millis = self.draw(|rng| if rng.u8(..3) == 0 { rng.u64(1..=12) } else { 0 });
        (millis > 0).then(|| Duration::from_millis(millis))
    }

    /// What goes wrong with a unit of the catalog.
    pub fn catalog(&self) -> Option<CatalogFault> {
        if !self.strikes(self.catalog_calls) {
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

    fn named(&self, operation: &str) -> (&'static str, Fault) {
        let own = match operation {
            "put" | "finish_upload" => 3,
            "put_part" | "get" | "probe" | "delete_batch" => 1,
            _ => 0,
        };
        let (pick, seconds) = self.draw(|rng| (rng.u8(..6 + own), rng.u64(1..HANG_MAX)));
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
                _ => ("fault late write", Fault::Late(Duration::from_secs(self.draw(|rng| rng.u64(..LATE_MAX))))),
            },
        }
    }
}

impl Weather for Storm {
    fn strike(&self, operation: &'static str, key: &str) -> Option<Fault> {
        if !self.strikes(self.backend_calls) {
            return None;
        }
        let (name, fault) = self.named(operation);
        self.journal.count(name);
        self.journal.tell(format_args!("  {operation} {key}: {fault:?}"));
        Some(fault)
    }
}
