//! Circuit breaker for one kind of calls to one backend: after consecutive failures no call is made for a time, then
//! one trial decides whether calls resume.
//!
//! Moments are times since boot, so that setting the wall clock neither closes nor prolongs anything.

use std::time::Duration;

use crate::backoff::Backoff;

/// Longest time without a trial.
const OPEN_MAX: Duration = Duration::from_mins(5);

/// When a circuit opens and how it closes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitSettings {
    /// Number of consecutive failures that open the circuit.
    pub failure_threshold: u32,
    /// How long it stays open at first; doubles with each failed trial, up to five minutes.
    pub open_timeout: Duration,
    /// How long a trial may run; after that it counts as failed.
    pub probe_timeout: Duration,
}

impl Default for CircuitSettings {
    fn default() -> Self {
        let (open_timeout, probe_timeout) = (Duration::from_secs(30), Duration::from_mins(2));
        Self { failure_threshold: 5, open_timeout, probe_timeout }
    }
}

/// Whether calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CircuitState {
    /// Calls are made.
    Closed,
    /// One trial is made or awaited.
    HalfOpen,
    /// No call is made.
    Open,
}

impl CircuitState {
    /// Name in status and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

/// Permission to make one call; its result is recorded with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// Number of the trial, if the call is one.
    trial: Option<u64>,
}

impl Permit {
    /// True if the result decides a half-open circuit.
    #[must_use]
    pub const fn is_trial(&self) -> bool {
        self.trial.is_some()
    }
}

/// Result of a call, as far as it says something about the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallResult {
    /// The backend did what it was asked, or proved that it cannot be done.
    Success,
    /// The backend failed.
    Failure,
    /// The call says nothing about the backend: the client sent a broken body, or the caller disconnected.
    Neutral,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed {
        failures: u32,
    },
    /// Without a trial until then.
    Open {
        until: Duration,
    },
    HalfOpen {
        trial: Option<Trial>,
    },
}

/// A trial in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Trial {
    number: u64,
    start: Duration,
}

/// The circuit of one kind of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circuit {
    phase: Phase,
    /// How often it opened without staying closed in between.
    openings: u32,
    /// True if the last probe of the identity object failed.
    probe_failed: bool,
    /// Number of trials so far; a call from an earlier trial must not end the current one.
    trials: u64,
    /// When it closed or opened last.
    since: Duration,
}

impl Default for Circuit {
    fn default() -> Self {
        Self {
            phase: Phase::Closed { failures: 0 },
            openings: 0,
            probe_failed: false,
            trials: 0,
            since: Duration::ZERO,
        }
    }
}

impl Circuit {
    /// Whether calls are made.
    #[must_use]
    pub const fn state(&self) -> CircuitState {
        match self.phase {
            Phase::Closed { .. } => CircuitState::Closed,
            Phase::HalfOpen { .. } => CircuitState::HalfOpen,
            Phase::Open { .. } => CircuitState::Open,
        }
    }

    /// Since when it is closed, or since when it is not.
    #[must_use]
    pub const fn since(&self) -> Duration {
        self.since
    }

    /// Whether a call would be made now.
    #[must_use]
    pub const fn admits(&self) -> bool {
        matches!(self.phase, Phase::Closed { .. } | Phase::HalfOpen { trial: None })
    }

    /// Asks to make a call; `None` means that the call must not be made.
    pub fn admit(&mut self, now: Duration) -> Option<Permit> {
        match &mut self.phase {
            Phase::Closed { .. } => Some(Permit { trial: None }),
            Phase::HalfOpen { trial: trial @ None } => {
                self.trials += 1;
                *trial = Some(Trial { number: self.trials, start: now });
                Some(Permit { trial: Some(self.trials) })
            }
            Phase::HalfOpen { trial: Some(_) } | Phase::Open { .. } => None,
        }
    }

    /// Records the result of a call. While the circuit is not closed, only trials count. One that succeeds closes the
    /// circuit even if it took longer than it may.
    pub fn record(
        &mut self,
        permit: Permit,
        result: CallResult,
        now: Duration,
        settings: &CircuitSettings,
        jitter: f64,
    ) {
        match (self.phase, result) {
            (Phase::Closed { .. }, CallResult::Success) => self.phase = Phase::Closed { failures: 0 },
            (Phase::Closed { failures }, CallResult::Failure) => {
                let failures = failures.saturating_add(1);
                self.phase = Phase::Closed { failures };
                if failures >= settings.failure_threshold {
                    self.open(now, settings, jitter);
                }
            }
            (Phase::HalfOpen { .. } | Phase::Open { .. }, CallResult::Success) if permit.trial.is_some() => {
                self.close(now);
            }
            (Phase::HalfOpen { .. }, CallResult::Failure) if self.is_current(permit) => {
                self.open(now, settings, jitter);
            }
            (Phase::HalfOpen { .. }, CallResult::Neutral) if self.is_current(permit) => {
                self.phase = Phase::HalfOpen { trial: None };
            }
            (Phase::Closed { .. } | Phase::HalfOpen { .. } | Phase::Open { .. }, _) => {}
        }
    }

    fn is_current(&self, permit: Permit) -> bool {
        matches!(self.phase, Phase::HalfOpen { trial: Some(trial) } if permit.trial == Some(trial.number))
    }

    /// How long until a trial is due, or until the trial in progress expires; `None` if neither is awaited.
    #[must_use]
    pub fn next_deadline(&self, now: Duration, settings: &CircuitSettings) -> Option<Duration> {
        let deadline = match self.phase {
            Phase::Open { until } => until,
            Phase::HalfOpen { trial: Some(trial) } => trial.start + settings.probe_timeout,
            Phase::Closed { .. } | Phase::HalfOpen { trial: None } => return None,
        };
        Some(deadline.saturating_sub(now))
    }

    /// Records a probe of the identity object. A good probe ends the open state: with `suffices` the circuit closes,
    /// otherwise one call must succeed first. It counts once the time without a trial has ended, or at once if the
    /// probe before it failed: the store has come back. A store whose identity was readable all along fails in another
    /// way, and waits. A failed probe is a failure of the calls for which a good one suffices.
    pub fn record_probe(
        &mut self,
        is_good: bool,
        suffices: bool,
        now: Duration,
        settings: &CircuitSettings,
        jitter: f64,
    ) {
        let failed_before = std::mem::replace(&mut self.probe_failed, !is_good);
        let has_come_back = is_good && failed_before;
        match self.phase {
            Phase::Closed { .. } if suffices && !is_good => {
                self.record(Permit { trial: None }, CallResult::Failure, now, settings, jitter);
            }
            Phase::Open { until } if now < until && !has_come_back => {}
            Phase::Open { .. } if !is_good => self.open(now, settings, jitter),
            Phase::Open { .. } if suffices => self.close(now),
            Phase::Open { .. } => self.phase = Phase::HalfOpen { trial: None },
            Phase::Closed { .. } | Phase::HalfOpen { .. } => {}
        }
    }

    /// Whether the trial in progress takes longer than it may.
    #[must_use]
    pub fn is_trial_overdue(&self, now: Duration, settings: &CircuitSettings) -> bool {
        matches!(self.phase, Phase::HalfOpen { trial: Some(trial) }
            if now.saturating_sub(trial.start) >= settings.probe_timeout)
    }

    /// Opens the circuit again if its trial takes longer than it may.
    pub fn expire_trial(&mut self, now: Duration, settings: &CircuitSettings, jitter: f64) {
        if self.is_trial_overdue(now, settings) {
            self.open(now, settings, jitter);
        }
    }

    fn open(&mut self, now: Duration, settings: &CircuitSettings, jitter: f64) {
        match self.phase {
            // A circuit that opens again soon after it closed continues to double its delay.
            Phase::Closed { .. } if now.saturating_sub(self.since) >= settings.open_timeout => {
                (self.openings, self.since) = (1, now);
            }
            Phase::Closed { .. } => (self.openings, self.since) = (self.openings.saturating_add(1), now),
            Phase::HalfOpen { .. } | Phase::Open { .. } => self.openings = self.openings.saturating_add(1),
        }
        let delays = Backoff { min: settings.open_timeout, max: OPEN_MAX.max(settings.open_timeout) };
        self.phase = Phase::Open { until: now + delays.delay(self.openings, jitter) };
    }

    fn close(&mut self, now: Duration) {
        (self.phase, self.since) = (Phase::Closed { failures: 0 }, now);
    }
}

#[cfg(test)]
mod tests;
