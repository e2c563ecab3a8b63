//! Workers as people see them.

use s3o_catalog::WorkerState;
use s3o_model::clock::Timestamp;
use serde::Serialize;

use super::Slot;
use crate::{Kind, RunReport};

/// Where a worker stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerView {
    /// Its name.
    pub name: &'static str,
    /// Where instances stand to each other.
    pub kind: Kind,
    /// How long it rests between runs.
    pub interval_seconds: f64,
    /// Whether its scheduled runs are left out.
    pub paused: bool,
    /// Whether this instance is running it.
    pub running: bool,
    /// When its last known run started, on any instance, in RFC 3339.
    pub last_started_at: Option<String>,
    /// When its last known good run finished, on any instance, in RFC 3339.
    pub last_success_at: Option<String>,
    /// When this instance looks at it next, in RFC 3339.
    pub next_due_at: Option<String>,
    /// Its last run on this instance.
    pub last_run: Option<RunReport>,
}

impl Slot {
    pub(super) fn view(&self, state: Option<&WorkerState>) -> WorkerView {
        let text = |moment: Timestamp| moment.to_string();
        let paused = state.is_some_and(|state| state.paused);
        let (last_run, next_due_at) = self.seen(|seen| (seen.last_run.clone(), seen.next_due_at));
        WorkerView {
            name: self.name,
            kind: self.schedule().kind,
            interval_seconds: self.schedule().interval.as_secs_f64(),
            paused,
            running: self.turn.try_lock().is_err(),
            last_started_at: state.and_then(|state| state.last_started_at).map(text),
            last_success_at: state.and_then(|state| state.last_success_at).map(text),
            next_due_at: next_due_at.filter(|_| !paused).map(text),
            last_run,
        }
    }
}
