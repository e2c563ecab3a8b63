//! Watches the wall clock and holds time-dependent deletions while the clock is not trusted.
//!
//! Only a catalog that uses this process's clock needs it; on PostgreSQL the database's clock counts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use s3o_catalog::Catalog;
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::clock_hold::{ClockChange, ClockJudge, Hold, Observation, StoreTime};

use crate::Error;

/// How often the clock is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How often the current time is recorded in the catalog.
const RECORD_INTERVAL: Duration = Duration::from_mins(1);

/// Synchronisation state of the wall clock in the kernel.
pub trait KernelClock: Send + Sync {
    /// True if the kernel reports the clock as synchronised; false if unknown.
    fn is_synchronised(&self) -> bool;
}

/// Is notified when work that depends on the clock is paused and when it continues.
pub trait ClockAlarm: Send + Sync {
    /// The work is paused for this reason.
    fn clock_frozen(&self, reason: &str);

    /// The work continues, because this source confirmed the clock.
    fn clock_accepted(&self, confirmed_by: &str);
}

/// Discards every notification; for tests.
impl ClockAlarm for () {
    fn clock_frozen(&self, _reason: &str) {}

    fn clock_accepted(&self, _confirmed_by: &str) {}
}

/// Constructor arguments of [`ClockGuard`].
pub struct ClockGuardParts {
    /// The clock to watch.
    pub clock: Arc<dyn Clock>,
    /// The kernel's view of it.
    pub kernel: Arc<dyn KernelClock>,
    /// Time from the `Date` headers of stores.
    pub store: Arc<StoreTime>,
    /// Reads and records the newest time in the catalog.
    pub notes: Arc<Catalog>,
    /// Is notified of holds.
    pub alarm: Arc<dyn ClockAlarm>,
}

/// Decides whether the wall clock can be trusted.
pub struct ClockGuard {
    parts: ClockGuardParts,
    state: Mutex<ClockGuardState>,
}

#[derive(Default)]
struct ClockGuardState {
    judge: ClockJudge,
    /// The newest time in the catalog at the last read.
    newest: Option<Timestamp>,
    /// When the current time was last recorded, as time since boot.
    recorded: Option<Duration>,
}

impl ClockGuard {
    /// A guard before its first check.
    #[must_use]
    pub fn new(parts: ClockGuardParts) -> Self {
        Self { parts, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, ClockGuardState> {
        self.state.lock()
    }

    fn observation(&self, newest: Option<Timestamp>) -> Observation {
        let reading = self.parts.clock.reading();
        let is_synchronised = self.parts.kernel.is_synchronised();
        Observation { reading, is_synchronised, store: self.parts.store.now(reading.boot), newest }
    }

    /// Checks the clock; returns the reason while it is not trusted.
    #[must_use]
    pub fn held(&self) -> Option<Hold> {
        let (change, held) = {
            let mut state = self.state();
            let observation = self.observation(state.newest);
            (state.judge.judge(&observation), state.judge.held().cloned())
        };
        match change {
            Some(ClockChange::Held(Hold { reason, .. })) => {
                tracing::warn!(reason, "clock not trusted, paused expiry, lifecycle, stale_multipart, grace periods");
                self.parts.alarm.clock_frozen(&reason);
            }
            Some(ClockChange::Released(confirmed_by)) => {
                tracing::info!(confirmed_by, "clock trusted again, paused work continues");
                self.parts.alarm.clock_accepted(confirmed_by);
            }
            None => {}
        }
        held
    }

    /// Checks the clock against the newest time in the catalog. Once a minute it records the current time there, if the
    /// clock is trusted.
    pub async fn observe(&self) -> Result<(), Error> {
        let boot = self.parts.clock.since_boot();
        let is_due = self.state().recorded.is_none_or(|last| boot.saturating_sub(last) >= RECORD_INTERVAL);
        if is_due {
            let newest = self.parts.notes.newest_time().await?;
            self.state().newest = newest;
        }
        if self.held().is_none() && is_due {
            self.parts.notes.note_time().await?;
            self.state().recorded = Some(boot);
        }
        Ok(())
    }

    /// Trusts the clock because an operator confirmed it; returns the hold that this ended.
    pub async fn accept(&self) -> Result<Option<Hold>, Error> {
        let newest = self.parts.notes.newest_time().await?;
        let held = {
            let mut state = self.state();
            state.newest = newest;
            state.judge.accept(&self.observation(newest))
        };
        self.parts.notes.note_time().await?;
        Ok(held)
    }

    /// Checks the clock every `CHECK_INTERVAL`; it does not return.
    pub async fn keep(&self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if let Err(error) = self.observe().await {
                tracing::warn!(%error, "cannot read or record the newest time in the catalog, retrying");
            }
        }
    }
}

#[cfg(test)]
mod tests;
