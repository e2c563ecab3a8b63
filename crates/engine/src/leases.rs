//! The leases of this process: which intents are open, until when, and whether they were lost.
//!
//! An upload that cannot renew its lease stops: the reaper may have claimed its intent. The clocks of this process also
//! show a writer when the last step of its write would come too late.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use s3o_model::clock::{Clock, Reading, Timestamp};
use s3o_model::ids::IntentId;

/// The end of a lease by the clocks of this process. They are read before the request to the catalog, so that a lease
/// never ends later in this process than in the catalog.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTerm {
    /// Both clocks at the end of the lease.
    pub ends: Reading,
    /// Time after the end during which a writer may still take the last step of its write.
    pub grace: Duration,
}

#[derive(Debug)]
struct LeaseEntry {
    end: Mutex<LeaseEnd>,
    lost: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct LeaseEnd {
    /// By the catalog's clock.
    until: Timestamp,
    /// By the clocks of this process.
    term: LeaseTerm,
}

/// The open leases of this process. Clones share them.
#[derive(Clone)]
pub struct Leases {
    open: Arc<Mutex<HashMap<IntentId, Arc<LeaseEntry>>>>,
    clock: Arc<dyn Clock>,
}

/// One lease; dropping it ends its renewal.
pub struct Lease(Option<HeldLease>);

struct HeldLease {
    intent: IntentId,
    entry: Arc<LeaseEntry>,
    leases: Leases,
}

/// The state of the leases of a write, one for each copy, for the body that is written under them. A write without a
/// lease cannot be fenced.
#[derive(Clone, Default)]
pub struct LeaseWatch(Vec<(Arc<LeaseEntry>, Arc<dyn Clock>)>);

impl LeaseEntry {
    fn end(&self) -> MutexGuard<'_, LeaseEnd> {
        self.end.lock()
    }
}

impl LeaseWatch {
    /// Watches all of these leases: the reaper claims all intents of a write together.
    pub fn of<'a>(leases: impl IntoIterator<Item = &'a Lease>) -> Self {
        let held = leases.into_iter().filter_map(|lease| lease.0.as_ref());
        Self(held.map(|own| (Arc::clone(&own.entry), Arc::clone(&own.leases.clock))).collect())
    }

    /// True if the reaper may have claimed an intent.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.iter().any(|(entry, _)| entry.lost.load(Ordering::Acquire))
    }

    /// True if the writer may take the last step, which makes its bytes visible on the backend. Cleanups probe for the
    /// bytes of an abandoned write for a limited time and would not find bytes that appear later.
    #[must_use]
    pub fn may_finish(&self) -> bool {
        self.0.iter().all(|(entry, clock)| {
            let LeaseTerm { ends, grace } = entry.end().term;
            !entry.lost.load(Ordering::Acquire) && !clock.reading().has_reached(ends.after(grace))
        })
    }
}

impl Lease {
    /// No lease, for a write without an intent: no other process can fence it.
    #[must_use]
    pub const fn unneeded() -> Self {
        Self(None)
    }

    /// A view of the lease that the body of the write checks.
    #[must_use]
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch::of([self])
    }

    /// The end of the lease as it was last obtained, by the catalog's clock.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.0.as_ref().map_or(Timestamp::from_millis(0), |own| own.entry.end().until)
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.leases.entries().remove(&self.intent);
    }
}

impl Leases {
    /// An empty set of leases.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { open: Arc::default(), clock }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<IntentId, Arc<LeaseEntry>>> {
        self.open.lock()
    }

    /// Adds a lease that the catalog just granted.
    #[must_use]
    pub fn hold(&self, intent: IntentId, until: Timestamp, term: LeaseTerm) -> Lease {
        let entry = Arc::new(LeaseEntry { end: Mutex::new(LeaseEnd { until, term }), lost: AtomicBool::new(false) });
        self.entries().insert(intent, Arc::clone(&entry));
        Lease(Some(HeldLease { intent, entry, leases: self.clone() }))
    }

    /// The intents to renew.
    #[must_use]
    pub fn open(&self) -> Vec<IntentId> {
        self.entries().keys().copied().collect()
    }

    /// Records the answer to a renewal of `requested`. An intent that is missing in it is no longer open: its lease is
    /// lost.
    pub fn renewed(&self, requested: &[IntentId], answered: &[(IntentId, Timestamp)], term: LeaseTerm) {
        let answered: HashMap<_, _> = answered.iter().copied().collect();
        let entries = self.entries();
        for intent in requested {
            if let Some(entry) = entries.get(intent) {
                match answered.get(intent) {
                    Some(until) => *entry.end() = LeaseEnd { until: *until, term },
                    None => entry.lost.store(true, Ordering::Release),
                }
            }
        }
    }

    /// Records that a renewal failed: leases that have expired by now are lost.
    pub fn not_renewed(&self) {
        let now = self.clock.reading();
        for entry in self.entries().values().filter(|entry| now.has_reached(entry.end().term.ends)) {
            entry.lost.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LeaseTerm, Leases};
    use s3o_model::clock::{Clock as _, ManualClock, Timestamp};
    use s3o_model::ids::IntentId;
    use std::sync::Arc;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn intent(number: u128) -> IntentId {
        IntentId::new(uuid::Uuid::from_u128(number))
    }

    fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_000)))
    }

    /// Starts now, with a grace of one second.
    fn term(clock: &ManualClock, length: Duration) -> LeaseTerm {
        LeaseTerm { ends: clock.reading().after(length), grace: SECOND }
    }

    #[test]
    fn lease_that_was_not_renewed_is_lost() {
        let clock = clock();
        let leases = Leases::new(clock.clone());
        let hold = |number| leases.hold(intent(number), Timestamp::from_millis(10), term(&clock, SECOND));
        let (kept, lost) = (hold(1), hold(2));
        leases.renewed(&leases.open(), &[(intent(1), Timestamp::from_millis(20))], term(&clock, SECOND));
        assert!(!kept.watch().is_lost() && kept.until() == Timestamp::from_millis(20));
        assert!(lost.watch().is_lost() && !lost.watch().may_finish());
    }

    #[test]
    fn failed_renewal_loses_only_expired_leases() {
        let clock = clock();
        let leases = Leases::new(clock.clone());
        let hold = |number, length| leases.hold(intent(number), Timestamp::from_millis(10), term(&clock, length));
        let (short, long) = (hold(1, SECOND), hold(2, 3 * SECOND));
        clock.advance(SECOND);
        leases.not_renewed();
        assert!(short.watch().is_lost());
        assert!(!long.watch().is_lost());
        drop(short);
        assert_eq!(leases.open(), vec![intent(2)]);
    }

    #[test]
    fn writer_does_not_finish_after_lease_and_grace() {
        let clock = clock();
        let leases = Leases::new(clock.clone());
        let lease = leases.hold(intent(1), Timestamp::from_millis(10), term(&clock, SECOND));
        clock.advance(SECOND);
        assert!(lease.watch().may_finish(), "the lease has ended, the grace has not");
        leases.renewed(&[intent(1)], &[(intent(1), Timestamp::from_millis(20))], term(&clock, SECOND));
        clock.advance(SECOND);
        assert!(lease.watch().may_finish(), "the lease was renewed");
        clock.advance(SECOND);
        assert!(!lease.watch().may_finish());
    }

    #[test]
    fn wall_clock_set_ahead_ends_the_lease() {
        let clock = clock();
        let leases = Leases::new(clock.clone());
        let lease = leases.hold(intent(1), Timestamp::from_millis(10), term(&clock, SECOND));
        clock.set(clock.now().after(2 * SECOND));
        assert!(!lease.watch().may_finish(), "the catalog may use this clock");
    }
}
