//! Reports of single ticks and of whole runs.

use std::collections::BTreeMap;
use std::time::Duration;

use s3o_model::names::BackendName;
use serde::Serialize;

use crate::event::Event;

/// What one tick did. After a failed tick it holds what the tick did before the failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of items by outcome.
    pub items: BTreeMap<&'static str, u64>,
    /// Number of items by outcome and backend; only outcomes that are counted per backend.
    pub by_backend: BTreeMap<(&'static str, BackendName), u64>,
    /// Audit events, in the order in which they happened.
    pub events: Vec<Event>,
    /// True if more work is waiting, so that the next tick should follow immediately.
    pub more: bool,
    /// Why another instance should do the work that this one cannot do. A run that did nothing else counts as skipped,
    /// so that the lock goes to an instance that can.
    pub yields: Option<&'static str>,
    /// How long the oldest item had been due; zero for workers that do not measure it.
    pub waited: Duration,
}

impl Report {
    /// Adds to the count of an outcome.
    pub fn count(&mut self, outcome: &'static str, items: u64) {
        if items > 0 {
            *self.items.entry(outcome).or_default() += items;
        }
    }

    /// Counts one item, in total and for its backend.
    pub fn count_at(&mut self, outcome: &'static str, backend: &BackendName) {
        self.count(outcome, 1);
        *self.by_backend.entry((outcome, backend.clone())).or_default() += 1;
    }

    /// Adds the report of a later tick; `more` is taken from that tick.
    pub fn absorb(&mut self, later: Self) {
        for (outcome, items) in later.items {
            self.count(outcome, items);
        }
        for (label, items) in later.by_backend {
            *self.by_backend.entry(label).or_default() += items;
        }
        self.events.extend(later.events);
        self.more = later.more;
        self.yields = later.yields;
        self.waited = self.waited.max(later.waited);
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// All work is done, or the time budget of the run is used up.
    Ok,
    /// A tick failed.
    Error,
    /// No tick ran: another instance holds the lock, the worker is paused, or the clock is not trusted.
    Skipped,
    /// A tick panicked.
    Panicked,
}

impl RunOutcome {
    /// Label value in metrics and value of `outcome` in the run history.
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

/// Result of one run of a worker, as the admin API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// Name of the worker.
    pub worker: &'static str,
    /// Identifier of the run.
    pub run_id: String,
    /// How the run ended.
    pub outcome: RunOutcome,
    /// Number of items by outcome.
    pub items: BTreeMap<&'static str, u64>,
    /// Start time, in RFC 3339.
    pub started_at: String,
    /// Finish time, in RFC 3339.
    pub finished_at: String,
    /// Error text of a failed run.
    pub error: Option<String>,
    /// Instance that holds the lock, if the run was skipped for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Why the run was skipped, if not for a lock: the clock is not trusted, or another instance should do the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl RunReport {
    /// True if the run changed something or failed; only such runs are audited.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        match self.outcome {
            RunOutcome::Ok => !self.items.is_empty(),
            RunOutcome::Error | RunOutcome::Panicked => true,
            RunOutcome::Skipped => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    #[test]
    fn absorb_adds_counts_and_takes_more_from_the_later_report() {
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
