//! The plan of faults: which call fails in which way, and a log of the calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_model::clock::Clock;
use s3o_model::entropy::Entropy;

use super::Flaky;
use crate::SharedBackend;

/// A fault of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call fails and has no effect.
    Before,
    /// The call takes effect, and its response is lost.
    After,
    /// The call starts this much later.
    Delay(Duration),
    /// The store receives all bytes of a write, and stores them this much later. Other calls start this much later.
    Stall(Duration),
    /// The call has no effect and fails after this time.
    Hang(Duration),
    /// The store rejects the call, which has no effect.
    Refused,
    /// The call has no effect, and its response is lost.
    Unknown,
    /// The response is lost, and a write takes effect this much later; other calls have no effect.
    Late(Duration),
    /// The request or response body is interrupted after this many bytes.
    Cut(u64),
    /// The response body of a read stops after this many bytes, and is interrupted this much later.
    Pause(u64, Duration),
    /// Only every second key of a batch is processed; the answer for the others is `Away`.
    PartialBatch,
    /// A proxy answers 404: a probe is `Unknown`, a read is `Away`.
    Wrong404,
    /// A page has at most one key and is truncated.
    ShortPage,
    /// A PUT reads this many bytes of its body and then fails with `NoSpace`.
    NoSpace(u64),
}

/// Chooses the faults of calls that have no planned fault.
pub trait FaultPlan: Send + Sync {
    /// The fault of this call; `None` if it succeeds.
    fn next_fault(&self, operation: &'static str, key: &str) -> Option<Fault>;
}

/// A call in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCall {
    /// Position in the order of all calls, from 1.
    pub number: u64,
    /// The name of the trait method.
    pub operation: &'static str,
    /// The key, prefix or first key of the batch.
    pub key: String,
    /// The injected fault.
    pub fault: Option<Fault>,
}

#[derive(Default)]
pub(super) struct PlannedFaults {
    /// By the number of the call.
    pub(super) faults: BTreeMap<u64, Fault>,
    away: bool,
    refusing: bool,
    schedule: Option<Arc<dyn FaultPlan>>,
    log: Vec<LoggedCall>,
}

impl PlannedFaults {
    /// Logs a call and returns its fault.
    pub(super) fn next(&mut self, operation: &'static str, key: &str) -> Option<Fault> {
        let number = self.log.len() as u64 + 1;
        let planned = if self.away { Some(Fault::Before) } else { self.faults.remove(&number) };
        let fault = planned.or_else(|| self.schedule.as_ref()?.next_fault(operation, key));
        self.log.push(LoggedCall { number, operation, key: key.to_owned(), fault });
        fault
    }
}

impl Flaky {
    /// Wraps `inner`, without faults.
    #[must_use]
    pub fn new(inner: SharedBackend) -> Self {
        Self { inner, plan: Mutex::default(), clock: None, late: Mutex::default() }
    }

    /// Late writes take effect by this clock. Without one they wait for [`Self::store_late_writes`].
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the plan for calls without a planned fault, or removes it.
    pub fn set_fault_plan(&self, schedule: Option<Arc<dyn FaultPlan>>) {
        self.lock().schedule = schedule;
    }

    /// Number of calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.lock().log.len() as u64
    }

    /// All calls so far, in order.
    #[must_use]
    pub fn log(&self) -> Vec<LoggedCall> {
        self.lock().log.clone()
    }

    /// Makes the call with this number fail.
    pub fn fail_call(&self, number: u64, fault: Fault) {
        self.lock().faults.insert(number, fault);
    }

    /// Makes about this share of the next calls fail in random ways. The same seed gives the same faults.
    pub fn fail_some(&self, calls: u64, share: f64, entropy: &dyn Entropy) {
        const KINDS: [Fault; 6] =
            [Fault::Before, Fault::After, Fault::Cut(1), Fault::PartialBatch, Fault::Wrong404, Fault::ShortPage];
        let next = self.calls() + 1;
        for number in next..next + calls {
            if entropy.next_unit() < share {
                let kind = usize::try_from(entropy.next_u64() % KINDS.len() as u64).unwrap_or(0);
                self.fail_call(number, KINDS[kind]);
            }
        }
    }

    /// Makes every call fail without effect until [`Self::come_back`].
    pub fn go_away(&self) {
        self.lock().away = true;
    }

    /// Ends the outage that [`Self::go_away`] started.
    pub fn come_back(&self) {
        self.lock().away = false;
    }

    /// Makes the store refuse all deletes, or accept them again.
    pub fn refuse_deletes(&self, refusing: bool) {
        self.lock().refusing = refusing;
    }

    pub(super) fn refuses_deletes(&self) -> bool {
        self.lock().refusing
    }

    /// Removes all planned faults. The numbering of calls continues.
    pub fn clear(&self) {
        let mut plan = self.lock();
        plan.faults.clear();
        plan.schedule = None;
        plan.away = false;
        plan.refusing = false;
    }
}
