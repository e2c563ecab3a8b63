//! What happened in one run: counted always, told in full when somebody will read it.

use std::collections::BTreeMap;
use std::fmt::{self, Arguments};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use s3o_model::clock::Clock;

use crate::sky::Sky;

/// How often what happened.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// Counts one.
    pub fn add(&mut self, what: &str) {
        self.add_many(what, 1);
    }

    fn add_many(&mut self, what: &str, times: u64) {
        match self.0.get_mut(what) {
            Some(count) => *count += times,
            None => drop(self.0.insert(what.to_owned(), times)),
        }
    }

    /// Adds all of another run.
    pub fn absorb(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            self.add_many(what, *times);
        }
    }

    /// How often.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, times)| writeln!(f, "  {what:<32} {times:>9}"))
    }
}

/// The journal of one run.
#[derive(Clone)]
pub struct Journal(Arc<Inner>);

struct Inner {
    sky: Arc<Sky>,
    counts: Mutex<Counts>,
    lines: Option<Mutex<Vec<String>>>,
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock()
}

impl Journal {
    /// An empty journal; only one that is `told` keeps lines.
    pub fn new(sky: Arc<Sky>, told: bool) -> Self {
        let lines = told.then(Mutex::default);
        Self(Arc::new(Inner { sky, counts: Mutex::default(), lines }))
    }

    /// Counts one.
    pub fn count(&self, what: &str) {
        lock(&self.0.counts).add(what);
    }

    /// Notes a line with its moment.
    pub fn tell(&self, line: Arguments<'_>) {
        if let Some(lines) = &self.0.lines {
            let moment = self.0.sky.now().millis() - 1_700_000_000_000;
            lock(lines).push(format!("{moment:>10} {line}"));
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        lock(&self.0.counts).clone()
    }

    /// The lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lines.as_ref().map(|lines| lock(lines).clone()).unwrap_or_default()
    }
}
