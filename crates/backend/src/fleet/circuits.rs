//! The circuit breaker of one backend on this instance. Reads and writes have a circuit each: a store that reads well
//! and fails every write must not be closed by its reads.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_model::circuit::{CallResult, Circuit, CircuitSettings, CircuitState, Permit};
use s3o_model::clock::Clock;
use s3o_model::entropy::Entropy;
use s3o_model::latency::FirstByteLatency;
use s3o_model::names::BackendName;
use s3o_model::shared::Shared;
use tokio::sync::Notify;

use super::{BackendState, Fleet};

/// What the circuit breakers of all backends are made with.
#[derive(Clone)]
pub struct BreakerContext {
    /// Settings; a reload replaces them.
    pub settings: Shared<CircuitSettings>,
    /// Measures how long circuits are open.
    pub clock: Arc<dyn Clock>,
    /// Source of jitter.
    pub entropy: Arc<dyn Entropy>,
}

/// The kind of a call, which decides its circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// Reads bytes, or asks what is there.
    Read,
    /// Stores bytes.
    Write,
}

impl CallKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
        }
    }
}

#[derive(Debug, Default)]
struct Pair {
    reads: Circuit,
    writes: Circuit,
    /// Fingerprint of the key whose read failed last.
    failed_key: Option<u64>,
    slow_reads: SlowReads,
    latency: FirstByteLatency,
}

/// Consecutive reads whose first byte was late.
#[derive(Debug, Default)]
struct SlowReads {
    count: u32,
    /// Time of the last one.
    last: Duration,
}

impl Pair {
    fn of(&mut self, kind: CallKind) -> &mut Circuit {
        match kind {
            CallKind::Read => &mut self.reads,
            CallKind::Write => &mut self.writes,
        }
    }
}

/// The circuits of one backend.
pub struct Circuits {
    backend: BackendName,
    context: BreakerContext,
    pair: Mutex<Pair>,
    /// Notified when a circuit opens, so that the prober waits for its trial.
    opened: Arc<Notify>,
}

impl std::fmt::Debug for Circuits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Circuits").field("backend", &self.backend).field("pair", &self.pair).finish_non_exhaustive()
    }
}

impl Circuits {
    /// Closed circuits; `opened` is notified when one opens.
    #[must_use]
    pub fn new(backend: BackendName, context: BreakerContext, opened: Arc<Notify>) -> Self {
        Self { backend, context, pair: Mutex::default(), opened }
    }

    /// State of the circuit for this kind of calls.
    #[must_use]
    pub fn state(&self, kind: CallKind) -> CircuitState {
        self.expire_trial(kind);
        self.pair.lock().of(kind).state()
    }

    /// Since when the circuit is closed, as a time since boot; `None` if it is not.
    #[must_use]
    pub fn closed_since(&self, kind: CallKind) -> Option<Duration> {
        self.expire_trial(kind);
        let mut pair = self.pair.lock();
        let circuit = pair.of(kind);
        (circuit.state() == CircuitState::Closed).then(|| circuit.since())
    }

    /// Whether a call of this kind would be made now.
    #[must_use]
    pub fn admits(&self, kind: CallKind) -> bool {
        self.expire_trial(kind);
        self.pair.lock().of(kind).admits()
    }

    /// Asks to make a call; `None` means that the call must not be made.
    #[must_use]
    pub fn admit(&self, kind: CallKind) -> Option<Permit> {
        self.expire_trial(kind);
        self.pair.lock().of(kind).admit(self.now())
    }

    /// Records the result of a call.
    pub fn record(&self, kind: CallKind, permit: Permit, result: CallResult) {
        let (now, settings) = (self.now(), self.context.settings.current());
        // Jitter is drawn for failures only, so that successful calls cost no system call.
        let jitter = if result == CallResult::Failure { self.context.entropy.next_unit() } else { 0.0 };
        self.change(kind, |circuit| circuit.record(permit, result, now, &settings, jitter));
    }

    /// Records a failed read of a key, by its fingerprint. Repeated failures of one key count once: the key may be
    /// unreadable, and the store fine.
    pub fn record_failed_read(&self, permit: Permit, key: u64) {
        let is_repeated = self.pair.lock().failed_key.replace(key) == Some(key);
        self.record(CallKind::Read, permit, if is_repeated { CallResult::Neutral } else { CallResult::Failure });
    }

    /// Records a write that was cancelled because the backend did not answer.
    pub fn record_unanswered_write(&self) {
        if let Some(permit) = self.admit(CallKind::Write) {
            self.record(CallKind::Write, permit, CallResult::Failure);
        }
    }

    /// Records how long the first byte of a read took; `None` if it did not arrive in time.
    pub fn record_first_byte(&self, took: Option<Duration>) {
        let (now, mut pair) = (self.now(), self.pair.lock());
        let count = if took.is_some() { 0 } else { pair.slow_reads.count.saturating_add(1) };
        pair.slow_reads = SlowReads { count, last: now };
        if let Some(took) = took {
            pair.latency.record(took, now);
        }
    }

    /// Class of the latency of reads: backends of a lower class are faster.
    #[must_use]
    pub fn latency_class(&self) -> u32 {
        let (now, pair) = (self.now(), self.pair.lock());
        pair.latency.class(now)
    }

    /// Whether the last reads were too slow, so that other copies are tried first. Ends after `open_timeout`: the next
    /// read shows whether the backend is still slow.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        let (now, settings, pair) = (self.now(), self.context.settings.current(), self.pair.lock());
        let SlowReads { count, last } = pair.slow_reads;
        count >= settings.failure_threshold && now.saturating_sub(last) < settings.open_timeout
    }

    /// How long until a probe of the identity object may close a circuit, or until a trial expires; `None` if neither
    /// is awaited.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let (now, settings, pair) = (self.now(), self.context.settings.current(), self.pair.lock());
        [&pair.reads, &pair.writes].into_iter().filter_map(|circuit| circuit.next_deadline(now, &settings)).min()
    }

    /// Records a probe of the identity object. A good one closes the circuit of reads; writes then need one real write,
    /// because only that shows that writes succeed.
    pub fn record_probe(&self, is_good: bool) {
        let (now, settings) = (self.now(), self.context.settings.current());
        for kind in [CallKind::Read, CallKind::Write] {
            let jitter = self.context.entropy.next_unit();
            let suffices = kind == CallKind::Read;
            self.change(kind, |circuit| circuit.record_probe(is_good, suffices, now, &settings, jitter));
        }
    }

    /// Opens a circuit again whose trial takes longer than it may. Every question about a circuit calls this first, so
    /// that no timer is needed.
    fn expire_trial(&self, kind: CallKind) {
        let (now, settings) = (self.now(), self.context.settings.current());
        if self.pair.lock().of(kind).is_trial_overdue(now, &settings) {
            let jitter = self.context.entropy.next_unit();
            self.change(kind, |circuit| circuit.expire_trial(now, &settings, jitter));
        }
    }

    fn now(&self) -> Duration {
        self.context.clock.since_boot()
    }

    /// Changes a circuit and logs its state if that changed.
    fn change(&self, kind: CallKind, change: impl FnOnce(&mut Circuit)) {
        let mut pair = self.pair.lock();
        let circuit = pair.of(kind);
        let before = circuit.state();
        change(circuit);
        let after = circuit.state();
        drop(pair);
        if before == after {
            return;
        }
        let (backend, calls, state) = (&self.backend, kind.as_str(), after.as_str());
        match after {
            CircuitState::Open => {
                tracing::warn!(%backend, calls, state, "circuit breaker opened, calls are skipped");
                self.opened.notify_one();
            }
            CircuitState::HalfOpen => tracing::info!(%backend, calls, state, "circuit breaker awaits one trial call"),
            CircuitState::Closed => tracing::info!(%backend, calls, state, "circuit breaker closed, calls resume"),
        }
    }
}

impl Fleet {
    /// Records that no probe of a backend is awaited: an operator removed it.
    pub fn skip_probe(&self, name: &BackendName) {
        if let Some(member) = self.member(name) {
            member.change(|state| state.probed = true);
        }
    }

    /// True once every backend was probed or attached since the start.
    #[must_use]
    pub fn is_probed(&self) -> bool {
        self.members.iter().map(super::Member::state).all(|state| state.probed || state.traits.is_some())
    }

    /// Whether this instance can read a backend now: it is configured, has the right identity and answers.
    #[must_use]
    pub fn is_readable(&self, name: &BackendName) -> bool {
        let is_open = self.circuit(name, CallKind::Read) == CircuitState::Open;
        let answers = |state: Arc<BackendState>| state.frozen.is_none() && state.reachability.outage().is_none();
        !is_open && self.state(name).is_some_and(answers)
    }

    /// Records a write that was cancelled because the backend did not answer, and requests an early probe.
    pub fn record_unanswered_write(&self, name: &BackendName) {
        if let Some(circuits) = self.circuits(name) {
            circuits.record_unanswered_write();
        }
        self.suspect(name);
    }

    /// Records how long the first byte of a read took; `None` if it did not arrive in time.
    pub fn record_first_byte(&self, name: &BackendName, took: Option<Duration>) {
        if let Some(circuits) = self.circuits(name) {
            circuits.record_first_byte(took);
        }
    }

    /// Class of the latency of a backend: copies on backends of a lower class are read first.
    #[must_use]
    pub fn latency_class(&self, name: &BackendName) -> u32 {
        self.circuits(name).map_or(0, |circuits| circuits.latency_class())
    }

    /// Whether the last reads of a backend were too slow, so that other copies are tried first.
    #[must_use]
    pub fn is_slow(&self, name: &BackendName) -> bool {
        self.circuits(name).is_some_and(|circuits| circuits.is_slow())
    }

    /// Since when a backend's circuit for this kind of calls is closed, as a time since boot; `None` if it is not. A
    /// backend without a circuit breaker counts as closed since boot.
    #[must_use]
    pub fn closed_since(&self, name: &BackendName, kind: CallKind) -> Option<Duration> {
        self.circuits(name).map_or(Some(Duration::ZERO), |circuits| circuits.closed_since(kind))
    }

    /// State of the circuit that is further from closed.
    #[must_use]
    pub fn worst_circuit(&self, name: &BackendName) -> CircuitState {
        self.circuit(name, CallKind::Read).max(self.circuit(name, CallKind::Write))
    }
}
