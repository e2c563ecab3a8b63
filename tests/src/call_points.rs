//! Call points: every call to the catalog and to a backend is one, counted as it is made. At any of them a test can
//! make the process die, lose an answer, or disconnect a client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_backend::layers::{Fault, FaultPlan};
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Driver, DriverLayer, Error};
use tokio::sync::Notify;
use tokio::task::yield_now;

/// What a test injects at a call point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFault {
    /// The process dies before the call has its effect.
    DieBefore,
    /// The process dies after the call has had its effect.
    DieAfter,
    /// The call has its effect, and its answer is lost.
    LoseAnswer,
}

/// Counts call points, and injects a fault at one of them.
#[derive(Clone, Default)]
pub struct CallPoints(Arc<CallPointsState>);

#[derive(Default)]
struct CallPointsState {
    passed: AtomicUsize,
    changed: Notify,
    planned: Mutex<Option<(usize, CallFault)>>,
    injected: AtomicBool,
    dead: AtomicBool,
    died: Notify,
    /// The catalog answers `Away` to units of this name.
    refused_unit: Mutex<Option<&'static str>>,
    /// Reads are not counted.
    only_effects: bool,
    journal: Mutex<Vec<String>>,
}

impl CallPoints {
    /// Counts only calls that change something: a crash between two of them leaves the same state as at either.
    #[must_use]
    pub fn of_effects() -> Self {
        Self(Arc::new(CallPointsState { only_effects: true, ..CallPointsState::default() }))
    }

    /// Injects a fault at the point with this number, counted from here.
    pub fn inject_at(&self, number: usize, fault: CallFault) {
        *self.planned() = Some((self.passed() + number, fault));
    }

    /// The catalog answers `Away` to units of this name from now on; None ends that.
    pub fn refuse_unit(&self, name: Option<&'static str>) {
        *self.0.refused_unit.lock() = name;
    }

    fn refuses(&self, unit: &Unit) -> bool {
        *self.0.refused_unit.lock() == Some(unit.name)
    }

    fn planned(&self) -> parking_lot::MutexGuard<'_, Option<(usize, CallFault)>> {
        self.0.planned.lock()
    }

    /// Number of points so far.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.0.passed.load(Ordering::SeqCst)
    }

    /// True once the planned fault was injected.
    #[must_use]
    pub fn has_injected(&self) -> bool {
        self.0.injected.load(Ordering::SeqCst)
    }

    /// True once the process died: no further call has an effect.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::SeqCst)
    }

    /// The calls so far, in order: `backend NAME` when a backend call begins, `unit NAME` when a unit is committed.
    #[must_use]
    pub fn journal(&self) -> Vec<String> {
        self.0.journal.lock().clone()
    }

    fn record(&self, kind: &str, name: &str) {
        self.0.journal.lock().push(format!("{kind} {name}"));
    }

    /// Waits for the death of the process.
    pub async fn death(&self) {
        let died = self.0.died.notified();
        if !self.is_dead() {
            died.await;
        }
    }

    /// Waits until this many points were passed.
    pub async fn reached(&self, points: usize) {
        loop {
            let changed = self.0.changed.notified();
            if self.passed() >= points {
                return;
            }
            changed.await;
        }
    }

    /// Passes a point that is not a call, and yields to other tasks.
    pub async fn step(&self) {
        self.pass(false);
        yield_now().await;
    }

    /// Passes a point; returns the fault to inject there.
    fn pass(&self, has_effect: bool) -> Option<CallFault> {
        if self.is_dead() {
            return Some(CallFault::DieBefore);
        }
        if self.0.only_effects && !has_effect {
            return None;
        }
        let number = self.0.passed.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.changed.notify_waiters();
        let fault = self.planned().take_if(|(planned, _)| *planned == number).map(|(_, fault)| fault);
        self.0.injected.fetch_or(fault.is_some(), Ordering::SeqCst);
        if let Some(CallFault::DieBefore | CallFault::DieAfter) = fault {
            self.0.dead.store(true, Ordering::SeqCst);
            self.0.died.notify_waiters();
        }
        fault
    }
}

/// The fault layer of a backend asks at every call.
impl FaultPlan for CallPoints {
    fn next_fault(&self, operation: &'static str, _key: &str) -> Option<Fault> {
        const READS: [&str; 6] = ["probe_traits", "get", "probe", "list", "uploads_of", "read_own"];
        self.record("backend", operation);
        match self.pass(!READS.contains(&operation))? {
            // Longer than any test: a dead process receives no answer.
            CallFault::DieBefore => Some(Fault::Hang(Duration::from_hours(100_000))),
            CallFault::DieAfter | CallFault::LoseAnswer => Some(Fault::After),
        }
    }
}

/// A catalog whose calls are points. It yields before and after every unit, so that a test can drop a request between
/// any two calls.
pub struct CountedDriver {
    /// Executes the calls.
    pub inner: Arc<dyn Driver>,
    /// Counts the calls.
    pub points: CallPoints,
}

#[async_trait]
impl DriverLayer for CountedDriver {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        let fault = self.points.pass(true);
        yield_now().await;
        if fault == Some(CallFault::DieBefore) {
            std::future::pending::<()>().await;
        }
        if self.points.refuses(&unit) {
            return Err(Error::Away("injected: unit refused".to_owned()));
        }
        let name = unit.name;
        let answers = self.inner.write(unit).await;
        if answers.is_ok() {
            self.points.record("unit", name);
        }
        self.points.step().await;
        match fault {
            Some(_) => answers.and_then(|_| Err(Error::Unknown("injected: committed, answer lost".to_owned()))),
            None => answers,
        }
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        let fault = self.points.pass(false);
        yield_now().await;
        match fault {
            Some(CallFault::DieBefore) => std::future::pending().await,
            Some(CallFault::DieAfter | CallFault::LoseAnswer) => Err(Error::Away("injected: no answer".to_owned())),
            None => self.inner.read(query).await,
        }
    }
}
