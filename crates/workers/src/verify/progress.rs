//! How far a verification has come, for whoever waits for it.

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

/// How far a verification has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyProgress {
    /// Whether one is under way.
    pub running: bool,
    /// What it looks at.
    pub step: String,
    /// How many rows or keys of that it has looked at.
    pub seen: u64,
}

#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<VerifyProgress>);

impl Progress {
    fn lock(&self) -> MutexGuard<'_, VerifyProgress> {
        self.0.lock()
    }

    pub(super) fn view(&self) -> VerifyProgress {
        self.lock().clone()
    }

    pub(super) fn begin(&self, step: impl Into<String>) {
        *self.lock() = VerifyProgress { running: true, step: step.into(), seen: 0 };
    }

    pub(super) fn seen(&self, items: usize) {
        self.lock().seen += items as u64;
    }

    /// Ends when it is dropped, however the verification ended.
    pub(super) fn running(&self) -> Running<'_> {
        Running(self)
    }
}

pub(super) struct Running<'a>(&'a Progress);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.lock() = VerifyProgress::default();
    }
}
