//! The leases of this process: which intents are open, until when, and whether they were lost.
//!
//! An upload that cannot renew its lease stops: the reaper may already have taken its intent. By the clocks of this
//! process a writer knows, too, when the last step of its write would come too late.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use s3o_model::clock::{Clock, Reading, Timestamp};
use s3o_model::ids::IntentId;

/// How long a lease holds by the clocks of this process. They are read before the catalog is asked, so that a lease
/// never ends later here than there.
#[derive(Debug, Clone, Copy)]
pub struct Term {
    /// What the clocks show when it has ended.
    pub ends: Reading,
    /// How long after that end a writer may still take the last step of its write.
    pub grace: Duration,
}

#[derive(Debug)]
struct Entry {
    held: Mutex<Held>,
    lost: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    /// By the catalog's clock.
    until: Timestamp,
    /// By the clocks of this process.
    term: Term,
}

/// The open leases.
#[derive(Clone)]
pub struct Leases {
    open: Arc<Mutex<HashMap<IntentId, Arc<Entry>>>>,
    clock: Arc<dyn Clock>,
}

/// One lease; dropping it ends its renewal.
pub struct Lease(Option<Own>);

struct Own {
    intent: IntentId,
    entry: Arc<Entry>,
    leases: Leases,
}

/// The state of a lease, for the body that is written under it. A write without a lease cannot be fenced.
#[derive(Clone, Default)]
pub struct Watch(Option<(Arc<Entry>, Arc<dyn Clock>)>);

impl Entry {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}

impl Watch {
    /// Whether the lease was lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.as_ref().is_some_and(|(entry, _)| entry.lost.load(Ordering::Acquire))
    }

    /// Whether the writer may take the last step, the one that makes its bytes appear. Cleanups look for the bytes of
    /// a lost write for a bounded time; no cleanup would find bytes that appeared after it.
    #[must_use]
    pub fn may_finish(&self) -> bool {
        let Some((entry, clock)) = &self.0 else { return true };
        let Term { ends, grace } = entry.held().term;
        !entry.lost.load(Ordering::Acquire) && !clock.reading().has_reached(ends.after(grace))
    }
}

impl Lease {
    /// For a write that is not announced, which no other process can fence.
    #[must_use]
    pub const fn unneeded() -> Self {
        Self(None)
    }

    /// What a body asks about this lease.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch(self.0.as_ref().map(|own| (Arc::clone(&own.entry), Arc::clone(&own.leases.clock))))
    }

    /// The end of the lease as it was last obtained, by the catalog's clock.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.0.as_ref().map_or(Timestamp::from_millis(0), |own| own.entry.held().until)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.leases.entries().remove(&self.intent);
    }
}

impl Leases {
    /// No leases yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { open: Arc::default(), clock }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<IntentId, Arc<Entry>>> {
        self.open.lock()
    }

    /// Keeps a lease that was just obtained.
    #[must_use]
    pub fn hold(&self, intent: IntentId, until: Timestamp, term: Term) -> Lease {
        let entry = Arc::new(Entry { held: Mutex::new(Held { until, term }), lost: AtomicBool::new(false) });
        self.entries().insert(intent, Arc::clone(&entry));
        Lease(Some(Own { intent, entry, leases: self.clone() }))
    }

    /// The intents to renew.
    #[must_use]
    pub fn open(&self) -> Vec<IntentId> {
        self.entries().keys().copied().collect()
    }

    /// Notes what a renewal of `asked` came to; an intent that was not renewed is no longer open.
    pub fn renewed(&self, asked: &[IntentId], answered: &[(IntentId, Timestamp)], term: Term) {
        let answered: HashMap<_, _> = answered.iter().copied().collect();
        let entries = self.entries();
        for intent in asked {
            if let Some(entry) = entries.get(intent) {
                match answered.get(intent) {
                    Some(until) => *entry.held() = Held { until: *until, term },
                    None => entry.lost.store(true, Ordering::Release),
                }
            }
        }
    }

    /// Notes that nothing could be renewed: what has run out by now is lost.
    pub fn not_renewed(&self) {
        let now = self.clock.reading();
        for entry in self.entries().values().filter(|entry| now.has_reached(entry.held().term.ends)) {
            entry.lost.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Leases, Term};
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

    /// A term that begins now and holds for so long, with a grace of one second.
    fn term(clock: &ManualClock, length: Duration) -> Term {
        Term { ends: clock.reading().after(length), grace: SECOND }
    }

    #[test]
    fn an_intent_that_was_not_renewed_is_lost() {
        let clock = clock();
        let leases = Leases::new(clock.clone());
        let hold = |number| leases.hold(intent(number), Timestamp::from_millis(10), term(&clock, SECOND));
        let (kept, gone) = (hold(1), hold(2));
        leases.renewed(&leases.open(), &[(intent(1), Timestamp::from_millis(20))], term(&clock, SECOND));
        assert!(!kept.watch().is_lost() && kept.until() == Timestamp::from_millis(20));
        assert!(gone.watch().is_lost() && !gone.watch().may_finish());
    }

    #[test]
    fn a_failed_renewal_loses_only_what_ran_out() {
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
    fn a_writer_past_its_lease_and_the_grace_does_not_finish() {
        let clock = clock();
        let leases = Leases::new(clock.clone());
        let lease = leases.hold(intent(1), Timestamp::from_millis(10), term(&clock, SECOND));
        clock.advance(SECOND);
        assert!(lease.watch().may_finish(), "the lease has ended, the grace has not");
        leases.renewed(&[intent(1)], &[(intent(1), Timestamp::from_millis(20))], term(&clock, SECOND));
        clock.advance(SECOND);
        assert!(lease.watch().may_finish(), "it was renewed");
        clock.advance(SECOND);
        assert!(!lease.watch().may_finish());
    }

    #[test]
    fn a_wall_clock_that_was_set_ends_the_lease_too() {
        let clock = clock();
        let leases = Leases::new(clock.clone());
        let lease = leases.hold(intent(1), Timestamp::from_millis(10), term(&clock, SECOND));
        clock.set(clock.now().after(2 * SECOND));
        assert!(!lease.watch().may_finish(), "the catalog may go by this clock");
    }
}
