//! What a worker did, and what the runner makes of it.

use std::collections::BTreeMap;
use std::time::Duration;

use s3o_model::names::BackendName;
use serde::Serialize;

use crate::event::Event;

/// What one tick did. A tick that fails has done what stands here before it failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many items came to which end.
    pub items: BTreeMap<&'static str, u64>,
    /// The same for items that are told apart by backend.
    pub by_backend: BTreeMap<(&'static str, BackendName), u64>,
    /// What happened to single things, for the audit trail.
    pub events: Vec<Event>,
    /// Whether more is waiting, so that the next tick should follow at once.
    pub more: bool,
    /// How long the first of it had been due, where that matters.
    pub waited: Duration,
}

impl Report {
    /// Counts items that came to an end.
    pub fn count(&mut self, outcome: &'static str, items: u64) {
        if items > 0 {
            *self.items.entry(outcome).or_default() += items;
        }
    }

    /// Counts an item of a backend that came to an end.
    pub fn count_at(&mut self, outcome: &'static str, backend: &BackendName) {
        self.count(outcome, 1);
        *self.by_backend.entry((outcome, backend.clone())).or_default() += 1;
    }

    /// Adds what another tick did; whether more waits is up to the later one.
    pub fn absorb(&mut self, later: Self) {
        for (outcome, items) in later.items {
            self.count(outcome, items);
        }
        for (place, items) in later.by_backend {
            *self.by_backend.entry(place).or_default() += items;
        }
        self.events.extend(later.events);
        self.more = later.more;
        self.waited = self.waited.max(later.waited);
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It did what there was to do, or spent its budget.
    Ok,
    /// A tick failed.
    Error,
    /// It did not take place: another instance holds the lock, the worker is paused, or the clock is in doubt.
    Skipped,
    /// A tick panicked.
    Panicked,
}

impl Outcome {
    /// The word for it in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Skipped => "skipped",
            Self::Panicked => "panicked",
        }
    }
}

/// What one run of a worker did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// The worker.
    pub worker: &'static str,
    /// The run.
    pub run_id: String,
    /// How it ended.
    pub outcome: Outcome,
    /// How many items came to which end.
    pub items: BTreeMap<&'static str, u64>,
    /// When it started, in RFC 3339.
    pub started_at: String,
    /// When it finished, in RFC 3339.
    pub finished_at: String,
    /// What went wrong.
    pub error: Option<String>,
    /// Who holds the lock, if that is why the run was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Why the run was skipped, if the clock is in doubt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl RunReport {
    /// Whether it changed something or could not: a run that somebody will want to know of.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        match self.outcome {
            Outcome::Ok => !self.items.is_empty(),
            Outcome::Error | Outcome::Panicked => true,
            Outcome::Skipped => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn reports_add_up_and_the_last_one_says_whether_more_waits() {
        let mut run = Report { more: true, ..Report::default() };
        run.count("success", 2);
        let mut last = Report::default();
        last.count("success", 1);
        last.count("retry", 0);
        run.absorb(last);
        assert_eq!(run.items.into_iter().collect::<Vec<_>>(), [("success", 3)]);
        assert!(!run.more);
    }
}
