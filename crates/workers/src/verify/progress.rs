//! Progress of a verification, as the admin API shows it.

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

/// Progress of the current verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyProgress {
    /// True while a verification runs.
    pub running: bool,
    /// The current check.
    pub step: String,
    /// Number of rows or keys that the current check has read.
    pub seen: u64,
}

#[derive(Debug, Default)]
pub(super) struct ProgressCell(Mutex<VerifyProgress>);

impl ProgressCell {
    fn lock(&self) -> MutexGuard<'_, VerifyProgress> {
        self.0.lock()
    }

    pub(super) fn view(&self) -> VerifyProgress {
        self.lock().clone()
    }

    pub(super) fn begin(&self, step: impl Into<String>) {
        *self.lock() = VerifyProgress { running: true, step: step.into(), seen: 0 };
    }

    pub(super) fn add_seen(&self, items: usize) {
        self.lock().seen += items as u64;
    }

    /// A guard that resets the progress when it is dropped.
    pub(super) fn running(&self) -> RunningVerification<'_> {
        RunningVerification(self)
    }
}

pub(super) struct RunningVerification<'a>(&'a ProgressCell);

impl Drop for RunningVerification<'_> {
    fn drop(&mut self) {
        *self.0.lock() = VerifyProgress::default();
    }
}
