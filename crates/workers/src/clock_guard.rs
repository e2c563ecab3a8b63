//! Watches the wall clock and says whether what time decides has to wait.
//!
//! Only a catalog that goes by this process's clock needs it; on PostgreSQL the database's clock counts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use s3o_catalog::ClockNotes;
use s3o_model::clock::{Clock, Timestamp};
use s3o_model::clock_hold::{Change, ClockJudge, Hold, Observation, StoreTime};

use crate::Error;

/// How often the clock is checked.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// How often the present time is noted in the catalog.
const NOTE_INTERVAL: Duration = Duration::from_mins(1);

/// What the kernel says of the wall clock.
pub trait KernelClock: Send + Sync {
    /// Whether the kernel calls it synchronised; `false` where it does not say.
    fn is_synchronised(&self) -> bool;
}

/// Is notified when work that depends on the clock is paused and when it continues.
pub trait ClockAlarm: Send + Sync {
    /// The work is paused for this reason.
    fn clock_frozen(&self, reason: &str);

    /// The work continues, because this source confirmed the clock.
    fn clock_accepted(&self, witness: &str);
}

/// Discards every notification; for tests.
impl ClockAlarm for () {
    fn clock_frozen(&self, _reason: &str) {}

    fn clock_accepted(&self, _witness: &str) {}
}

/// What a guard is made of.
pub struct ClockGuardParts {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// What the kernel says of it.
    pub kernel: Arc<dyn KernelClock>,
    /// What stores say of it.
    pub store: Arc<StoreTime>,
    /// The newest time in the catalog.
    pub notes: Arc<dyn ClockNotes>,
    /// Is informed of holds.
    pub alarm: Arc<dyn ClockAlarm>,
}

/// Watches the wall clock.
pub struct ClockGuard {
    parts: ClockGuardParts,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    judge: ClockJudge,
    /// The newest time in the catalog as it was last read.
    newest: Option<Timestamp>,
    /// When the present time was last noted, as time since boot.
    noted: Option<Duration>,
}

impl ClockGuard {
    /// A guard that has not looked yet.
    #[must_use]
    pub fn new(parts: ClockGuardParts) -> Self {
        Self { parts, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn seen(&self, newest: Option<Timestamp>) -> Observation {
        let reading = self.parts.clock.reading();
        let is_synchronised = self.parts.kernel.is_synchronised();
        Observation { reading, is_synchronised, store: self.parts.store.now(reading.boot), newest }
    }

    /// Looks at the clock, and says why what time decides waits.
    #[must_use]
    pub fn held(&self) -> Option<Hold> {
        let (change, held) = {
            let mut state = self.state();
            let seen = self.seen(state.newest);
            (state.judge.judge(&seen), state.judge.held().cloned())
        };
        match change {
            Some(Change::Held(Hold { reason, .. })) => {
                tracing::warn!(reason, "clock not trusted, expiry, lifecycle, stale uploads and grace periods paused");
                self.parts.alarm.clock_frozen(&reason);
            }
            Some(Change::Released(witness)) => {
                tracing::info!(witness, "clock trusted again");
                self.parts.alarm.clock_accepted(witness);
            }
            None => {}
        }
        held
    }

    /// Looks at the clock and at the newest time in the catalog. A time that is not in doubt is noted there once a
    /// minute.
    pub async fn observe(&self) -> Result<(), Error> {
        let boot = self.parts.clock.since_boot();
        let is_due = self.state().noted.is_none_or(|noted| boot.saturating_sub(noted) >= NOTE_INTERVAL);
        if is_due {
            let newest = self.parts.notes.newest_time().await?;
            self.state().newest = newest;
        }
        if self.held().is_none() && is_due {
            self.parts.notes.note_time().await?;
            self.state().noted = Some(boot);
        }
        Ok(())
    }

    /// Trusts the clock because an operator confirmed it; returns the hold that this ended.
    pub async fn accept(&self) -> Result<Option<Hold>, Error> {
        let newest = self.parts.notes.newest_time().await?;
        let held = {
            let mut state = self.state();
            state.newest = newest;
            let seen = self.seen(newest);
            state.judge.accept(&seen)
        };
        self.parts.notes.note_time().await?;
        Ok(held)
    }

    /// Looks again and again for as long as it is polled.
    pub async fn keep(&self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if let Err(error) = self.observe().await {
                tracing::warn!(%error, "newest time in the catalog not read or recorded");
            }
        }
    }
}

#[cfg(test)]
mod tests;
