//! The leases of this process: which intents are open, until when, and whether they were lost.
//!
//! An upload that cannot renew its lease stops: the reaper may already have taken its intent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use s3o_model::clock::Timestamp;
use s3o_model::ids::IntentId;
use s3o_model::intent::lease_holds;

#[derive(Debug)]
struct Entry {
    until: Timestamp,
    lost: Arc<AtomicBool>,
}

/// The open leases.
#[derive(Debug, Clone, Default)]
pub struct Leases(Arc<Mutex<HashMap<IntentId, Entry>>>);

/// One lease; dropping it ends its renewal.
#[derive(Debug)]
pub struct Lease {
    intent: IntentId,
    lost: Arc<AtomicBool>,
    leases: Leases,
}

impl Lease {
    /// A flag that turns true when the lease could not be renewed.
    #[must_use]
    pub fn lost_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.lost)
    }
}

impl Lease {
    /// The end of the lease as it was last obtained.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.leases.entries().get(&self.intent).map_or(Timestamp::from_millis(0), |entry| entry.until)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.leases.entries().remove(&self.intent);
    }
}

impl Lease {
    /// For a write that nobody else knows of: nobody can take it away.
    #[must_use]
    pub fn unneeded(intent: IntentId) -> Self {
        Self { intent, lost: Arc::default(), leases: Leases::default() }
    }
}

impl Leases {
    fn entries(&self) -> MutexGuard<'_, HashMap<IntentId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a lease that was just obtained.
    #[must_use]
    pub fn hold(&self, intent: IntentId, until: Timestamp) -> Lease {
        let lost = Arc::new(AtomicBool::new(false));
        self.entries().insert(intent, Entry { until, lost: Arc::clone(&lost) });
        Lease { intent, lost, leases: self.clone() }
    }

    /// The intents to renew.
    #[must_use]
    pub fn open(&self) -> Vec<IntentId> {
        self.entries().keys().copied().collect()
    }

    /// Notes what a renewal of `asked` came to; an intent that was not renewed is no longer open.
    pub fn renewed(&self, asked: &[IntentId], answered: &[(IntentId, Timestamp)]) {
        let answered: HashMap<_, _> = answered.iter().copied().collect();
        let mut entries = self.entries();
        for intent in asked {
            if let Some(entry) = entries.get_mut(intent) {
                match answered.get(intent) {
                    Some(until) => entry.until = *until,
                    None => entry.lost.store(true, Ordering::Release),
                }
            }
        }
    }

    /// Notes that nothing could be renewed: what has run out by now is lost.
    pub fn not_renewed(&self, now: Timestamp) {
        for entry in self.entries().values().filter(|entry| !lease_holds(entry.until, now)) {
            entry.lost.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Leases;
    use s3o_model::clock::Timestamp;
    use s3o_model::ids::IntentId;
    use std::sync::atomic::Ordering;

    fn intent(number: u128) -> IntentId {
        IntentId::new(uuid::Uuid::from_u128(number))
    }

    #[test]
    fn an_intent_that_was_not_renewed_is_lost() {
        let leases = Leases::default();
        let (kept, gone) =
            (leases.hold(intent(1), Timestamp::from_millis(10)), leases.hold(intent(2), Timestamp::from_millis(10)));
        leases.renewed(&leases.open(), &[(intent(1), Timestamp::from_millis(20))]);
        assert!(!kept.lost_flag().load(Ordering::Acquire));
        assert!(gone.lost_flag().load(Ordering::Acquire));
    }

    #[test]
    fn a_failed_renewal_loses_only_what_ran_out() {
        let leases = Leases::default();
        let (short, long) =
            (leases.hold(intent(1), Timestamp::from_millis(10)), leases.hold(intent(2), Timestamp::from_millis(30)));
        leases.not_renewed(Timestamp::from_millis(10));
        assert!(short.lost_flag().load(Ordering::Acquire));
        assert!(!long.lost_flag().load(Ordering::Acquire));
        drop(short);
        assert_eq!(leases.open(), vec![intent(2)]);
    }
}
