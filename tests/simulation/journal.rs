//! The events of one run: always counted, and recorded line by line for a replay.

use std::collections::BTreeMap;
use std::fmt::{self, Arguments};
use std::sync::Arc;

use parking_lot::Mutex;
use s3o_model::clock::Clock;

use crate::clock::SimulatedClock;

/// Number of events by name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct EventCounts(BTreeMap<String, u64>);

impl EventCounts {
    pub fn add(&mut self, what: &str) {
        self.add_many(what, 1);
    }

    fn add_many(&mut self, what: &str, times: u64) {
        match self.0.get_mut(what) {
            Some(count) => *count += times,
            None => drop(self.0.insert(what.to_owned(), times)),
        }
    }

    /// Adds the counts of another run.
    pub fn absorb(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            self.add_many(what, *times);
        }
    }

    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

impl fmt::Display for EventCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, times)| writeln!(f, "  {what:<32} {times:>9}"))
    }
}

/// Shared by everything that runs in one seed.
#[derive(Clone)]
pub struct Journal(Arc<JournalState>);

struct JournalState {
    clock: Arc<SimulatedClock>,
    counts: Mutex<EventCounts>,
    lines: Option<Mutex<Vec<String>>>,
}

impl Journal {
    /// Only a verbose journal keeps lines.
    pub fn new(clock: Arc<SimulatedClock>, verbose: bool) -> Self {
        let lines = verbose.then(Mutex::default);
        Self(Arc::new(JournalState { clock, counts: Mutex::default(), lines }))
    }

    pub fn count(&self, what: &str) {
        self.0.counts.lock().add(what);
    }

    /// Adds a line with the current time, in milliseconds since the start of the simulation.
    pub fn record(&self, line: Arguments<'_>) {
        if let Some(lines) = &self.0.lines {
            let millis = self.0.clock.now().millis() - 1_700_000_000_000;
            lines.lock().push(format!("{millis:>10} {line}"));
        }
    }

    pub fn counts(&self) -> EventCounts {
        self.0.counts.lock().clone()
    }

    /// Empty unless the journal is verbose.
    pub fn lines(&self) -> Vec<String> {
        self.0.lines.as_ref().map(|lines| lines.lock().clone()).unwrap_or_default()
    }
}
