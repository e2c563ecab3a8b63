//! Points: every call to the catalog and to a backend is one, counted as it is made. At any of them
//! the process can be made to die, an answer to get lost, or a client to hang up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_backend::layers::{Fault, Weather};
use s3o_catalog::unit::{Answer, Row, Statement, Unit};
use s3o_catalog::{Driver, DriverLayer, Error};
use tokio::sync::Notify;
use tokio::task::yield_now;

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// The process dies before the call has its effect.
    DieBefore,
    /// The process dies when the call had its effect.
    DieAfter,
    /// The call has its effect, and its answer is lost.
    LoseAnswer,
}

/// Counts the points of what is under way, and strikes at one of them.
#[derive(Clone, Default)]
pub struct Points(Arc<Counted>);

#[derive(Default)]
struct Counted {
    passed: AtomicUsize,
    changed: Notify,
    planned: Mutex<Option<(usize, Blow)>>,
    struck: AtomicBool,
    dead: AtomicBool,
    died: Notify,
    /// The unit for which the catalog is away.
    refused_unit: Mutex<Option<&'static str>>,
    /// Calls that change nothing are no points.
    only_effects: bool,
    journal: Mutex<Vec<String>>,
}

impl Points {
    /// Points that are calls which change something: between two of them, every crash leaves the
    /// same behind.
    #[must_use]
    pub fn of_effects() -> Self {
        Self(Arc::new(Counted { only_effects: true, ..Counted::default() }))
    }

    /// Strikes at the point with this number, counted from here.
    pub fn strike_at(&self, number: usize, blow: Blow) {
        *self.planned() = Some((self.passed() + number, blow));
    }

    /// The catalog is away for units of this name from now on, or for none.
    pub fn refuse_unit(&self, name: Option<&'static str>) {
        *self.0.refused_unit.lock() = name;
    }

    fn refuses(&self, unit: &Unit) -> bool {
        *self.0.refused_unit.lock() == Some(unit.name)
    }

    fn planned(&self) -> parking_lot::MutexGuard<'_, Option<(usize, Blow)>> {
        self.0.planned.lock()
    }

    /// How many were passed.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.0.passed.load(Ordering::SeqCst)
    }

    /// Whether the blow found its point.
    #[must_use]
    pub fn has_struck(&self) -> bool {
        self.0.struck.load(Ordering::SeqCst)
    }

    /// Whether the process is dead: no call has an effect any more.
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

    /// Waits until so many were passed.
    pub async fn reached(&self, points: usize) {
        loop {
            let changed = self.0.changed.notified();
            if self.passed() >= points {
                return;
            }
            changed.await;
        }
    }

    /// Passes a point that is no call, and lets others run.
    pub async fn step(&self) {
        self.pass(false);
        yield_now().await;
    }

    /// Passes a point and tells what happens at it.
    fn pass(&self, has_effect: bool) -> Option<Blow> {
        if self.is_dead() {
            return Some(Blow::DieBefore);
        }
        if self.0.only_effects && !has_effect {
            return None;
        }
        let number = self.0.passed.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.changed.notify_waiters();
        let blow = self.planned().take_if(|(planned, _)| *planned == number).map(|(_, blow)| blow);
        self.0.struck.fetch_or(blow.is_some(), Ordering::SeqCst);
        if let Some(Blow::DieBefore | Blow::DieAfter) = blow {
            self.0.dead.store(true, Ordering::SeqCst);
            self.0.died.notify_waiters();
        }
        blow
    }
}

/// The points of backends: a flaky one asks at every call.
impl Weather for Points {
    fn strike(&self, operation: &'static str, _key: &str) -> Option<Fault> {
        const LOOKS: [&str; 6] = ["probe_traits", "get", "probe", "list", "uploads_of", "read_own"];
        self.record("backend", operation);
        match self.pass(!LOOKS.contains(&operation))? {
            // Longer than any test: the dead do not answer.
            Blow::DieBefore => Some(Fault::Hang(Duration::from_hours(100_000))),
            Blow::DieAfter | Blow::LoseAnswer => Some(Fault::After),
        }
    }
}

/// The points of a catalog. Others run before and after every unit, so that a request can be given
/// up between any two calls.
pub struct Pointed {
    /// What does the work.
    pub inner: Arc<dyn Driver>,
    /// Where the points are counted.
    pub points: Points,
}

#[async_trait]
impl DriverLayer for Pointed {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        let blow = self.points.pass(true);
        yield_now().await;
        if blow == Some(Blow::DieBefore) {
            std::future::pending::<()>().await;
        }
        if self.points.refuses(&unit) {
            return Err(Error::Away("injected: this unit is refused".to_owned()));
        }
        let name = unit.name;
        let answers = self.inner.write(unit).await;
        if answers.is_ok() {
            self.points.record("unit", name);
        }
        self.points.step().await;
        match blow {
            Some(_) => answers.and_then(|_| Err(Error::Unknown("injected: it happened".to_owned()))),
            None => answers,
        }
    }

    async fn on_read(&self, query: Statement) -> Result<Vec<Row>, Error> {
        let blow = self.points.pass(false);
        yield_now().await;
        match blow {
            Some(Blow::DieBefore) => std::future::pending().await,
            Some(Blow::DieAfter | Blow::LoseAnswer) => Err(Error::Away("injected: no answer".to_owned())),
            None => self.inner.read(query).await,
        }
    }
}
