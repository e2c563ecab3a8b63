//! The status of workers, as the admin API and the UI show it.

use s3o_catalog::WorkerState;
use s3o_model::clock::Timestamp;
use serde::Serialize;

use super::slot::WorkerSlot;
use crate::{Kind, RunReport};

/// Schedule and last runs of one worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkerView {
    /// As in settings, metrics and the admin API.
    pub name: &'static str,
    /// How instances share the work.
    pub kind: Kind,
    /// Time between runs, in seconds.
    pub interval_seconds: f64,
    /// False if the configuration disables its scheduled runs; it still runs on request.
    pub enabled: bool,
    /// True if scheduled runs are suspended.
    pub paused: bool,
    /// True while a run is in progress on this instance.
    pub running: bool,
    /// Start of the last recorded run on any instance, in RFC 3339.
    pub last_started_at: Option<String>,
    /// End of the last recorded successful run on any instance, in RFC 3339.
    pub last_success_at: Option<String>,
    /// When this instance considers the next run, in RFC 3339; `None` while paused or disabled.
    pub next_due_at: Option<String>,
    /// Last run on this instance.
    pub last_run: Option<RunReport>,
}

impl WorkerSlot {
    pub(super) fn view(&self, state: Option<&WorkerState>) -> WorkerView {
        let text = |moment: Timestamp| moment.to_string();
        let enabled = self.schedule().enabled;
        let paused = state.is_some_and(|state| state.paused);
        let (last_run, next_due_at) = self.with_status(|status| (status.last_run.clone(), status.next_due_at));
        WorkerView {
            name: self.name,
            kind: self.schedule().kind,
            interval_seconds: self.schedule().interval.as_secs_f64(),
            enabled,
            paused,
            running: self.turn.try_lock().is_err(),
            last_started_at: state.and_then(|state| state.last_started_at).map(text),
            last_success_at: state.and_then(|state| state.last_success_at).map(text),
            next_due_at: next_due_at.filter(|_| enabled && !paused).map(text),
            last_run,
        }
    }
}
