//! All backends, in the order in which they are configured, with what is known of each.
//!
//! What is known changes while requests run, so readers take a snapshot: whoever holds one sees
//! one consistent state.

mod health;

use std::sync::Arc;

use parking_lot::RwLock;
use s3o_model::clock::Timestamp;
use s3o_model::names::BackendName;
use s3o_model::placement::BackendView;
use tokio::sync::Notify;

pub use health::{FULL_FOR, FullMark, Health, Outage, Reachability};

use crate::{SharedBackend, Traits};

/// The reason for which a backend is frozen until it is reached for the first time.
pub const NOT_REACHED: &str = "not reached since the start";

/// What is known of one backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// What it was found to do, once it was reached.
    pub traits: Option<Traits>,
    /// Why it is frozen, if it is: no destructive work, and no writes.
    pub frozen: Option<String>,
    /// What the last probes found.
    pub reachability: Reachability,
    /// Its last "no space" answer.
    pub full: Option<FullMark>,
}

impl Standing {
    /// Its health at this moment.
    #[must_use]
    pub fn health(&self, now: Timestamp) -> Health {
        if let Some(outage) = self.reachability.outage() {
            return Health::Away(outage.clone());
        }
        match (&self.frozen, self.full.filter(|full| full.holds(now))) {
            (Some(reason), _) => Health::Frozen(reason.clone()),
            (None, Some(full)) => Health::Full { from_bytes: full.from_bytes },
            (None, None) => Health::Ok,
        }
    }
}

#[derive(Debug)]
struct Member {
    backend: SharedBackend,
    standing: RwLock<Arc<Standing>>,
    /// Notified when a request saw an error that a probe should confirm.
    suspected: Notify,
}

impl Member {
    fn standing(&self) -> Arc<Standing> {
        Arc::clone(&self.standing.read())
    }

    fn change(&self, change: impl FnOnce(&mut Standing)) {
        let mut held = self.standing.write();
        let mut standing = held.as_ref().clone();
        change(&mut standing);
        *held = Arc::new(standing);
    }
}

/// Two backends were given the same name.
#[derive(Debug, thiserror::Error)]
#[error("the backend {0} is named twice")]
pub struct NamedTwice(pub BackendName);

/// All backends.
#[derive(Debug, Default)]
pub struct Fleet {
    members: Vec<Member>,
}

impl Fleet {
    /// A fleet of these backends, of which nothing is known yet.
    pub fn new(backends: Vec<SharedBackend>) -> Result<Self, NamedTwice> {
        let mut fleet = Self::default();
        for backend in backends {
            if fleet.get(backend.name()).is_some() {
                return Err(NamedTwice(backend.name().clone()));
            }
            fleet.members.push(Member { backend, standing: RwLock::default(), suspected: Notify::new() });
        }
        Ok(fleet)
    }

    /// The backend of this name.
    #[must_use]
    pub fn get(&self, name: &BackendName) -> Option<&SharedBackend> {
        self.member(name).map(|member| &member.backend)
    }

    /// All backends, in order.
    pub fn backends(&self) -> impl Iterator<Item = &SharedBackend> {
        self.members.iter().map(|member| &member.backend)
    }

    /// What is known of a backend.
    #[must_use]
    pub fn standing(&self, name: &BackendName) -> Option<Arc<Standing>> {
        self.member(name).map(Member::standing)
    }

    /// All backends as placement sees them, in order. What only the catalog knows, room and
    /// draining, is for the caller to fill in.
    #[must_use]
    pub fn views(&self, now: Timestamp) -> Vec<BackendView> {
        let view = |member: &Member| {
            let standing = member.standing();
            BackendView {
                name: member.backend.name().clone(),
                writable: standing.frozen.is_none(),
                reachable: standing.reachability.outage().is_none(),
                full_from_bytes: standing.full.filter(|full| full.holds(now)).map(|full| full.from_bytes),
                object_bytes_max: None,
                available_bytes: None,
            }
        };
        self.members.iter().map(view).collect()
    }

    /// Health of every backend, in order.
    #[must_use]
    pub fn health(&self, now: Timestamp) -> Vec<(BackendName, Health)> {
        let of = |member: &Member| (member.backend.name().clone(), member.standing().health(now));
        self.members.iter().map(of).collect()
    }

    /// Records the answer to a probe, and drops a "no space" mark that has expired.
    pub fn record_probe(&self, name: &BackendName, answer: Result<(), String>, now: Timestamp) {
        self.changing_health(name, |standing| {
            standing.reachability.record(answer, now);
            standing.full = standing.full.filter(|full| full.holds(now));
        });
    }

    /// Records that a backend had no space for a body of this size.
    pub fn record_no_space(&self, name: &BackendName, size_bytes: u64, now: Timestamp) {
        self.changing_health(name, |standing| {
            standing.full = Some(FullMark::joined(standing.full, size_bytes, now));
        });
    }

    /// Records that bytes were deleted from a backend, so that it may have space again.
    pub fn record_freed(&self, name: &BackendName) {
        if self.standing(name).is_some_and(|standing| standing.full.is_some()) {
            self.changing_health(name, |standing| standing.full = None);
        }
    }

    /// Asks for an early probe of a backend, because a request could not reach it.
    pub fn suspect(&self, name: &BackendName) {
        if let Some(member) = self.member(name) {
            member.suspected.notify_one();
        }
    }

    /// Waits until an early probe of a backend was asked for.
    pub async fn suspected(&self, name: &BackendName) {
        match self.member(name) {
            Some(member) => member.suspected.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Changes what is known of a backend and logs its health if that changed.
    fn changing_health(&self, name: &BackendName, change: impl FnOnce(&mut Standing)) {
        let Some(member) = self.member(name) else { return };
        // A "no space" mark counts until it is dropped, so that its expiry is logged as well.
        let recorded =
            |standing: &Standing| standing.health(standing.full.map_or(Timestamp::from_millis(0), |full| full.at));
        let before = recorded(&member.standing());
        member.change(change);
        let after = recorded(&member.standing());
        if before.as_str() == after.as_str() {
            return;
        }
        if after == Health::Ok {
            tracing::info!(backend = %name, before = before.as_str(), "backend health is ok");
        } else {
            tracing::warn!(backend = %name, before = before.as_str(), health = %after, "backend health changed");
        }
    }

    /// Records what a backend was found to do.
    pub fn set_traits(&self, name: &BackendName, traits: Traits) {
        if let Some(member) = self.member(name) {
            member.change(|standing| standing.traits = Some(traits));
        }
    }

    /// Freezes a backend, or thaws it with `None`.
    pub fn set_frozen(&self, name: &BackendName, reason: Option<String>) {
        if let Some(member) = self.member(name) {
            member.change(|standing| standing.frozen = reason);
        }
    }

    fn member(&self, name: &BackendName) -> Option<&Member> {
        self.members.iter().find(|member| member.backend.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::{FULL_FOR, Fleet, Health};
    use crate::{Memory, SharedBackend};
    use s3o_model::clock::Timestamp;
    use s3o_model::names::BackendName;
    use std::sync::Arc;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn name(text: &str) -> BackendName {
        text.parse().expect("valid")
    }

    fn memory(text: &str) -> SharedBackend {
        Arc::new(Memory::new(name(text)))
    }

    #[test]
    fn a_frozen_backend_takes_no_writes_until_it_thaws() {
        let fleet = Fleet::new(vec![memory("b"), memory("a")]).expect("two names");
        let before = fleet.standing(&name("a")).expect("known");
        fleet.set_frozen(&name("a"), Some("wrong disk".to_owned()));
        assert_eq!(before.frozen, None);
        assert!(fleet.views(NOW)[0].writable && !fleet.views(NOW)[1].writable);
        fleet.set_frozen(&name("a"), None);
        assert!(fleet.views(NOW)[1].writable);
    }

    #[test]
    fn full_lasts_a_minute_or_until_a_delete() {
        let fleet = Fleet::new(vec![memory("a")]).expect("one name");
        fleet.record_no_space(&name("a"), 10, NOW);
        assert_eq!(fleet.health(NOW)[0].1, Health::Full { from_bytes: 10 });
        assert_eq!(fleet.views(NOW)[0].full_from_bytes, Some(10));
        assert_eq!(fleet.views(NOW.after(FULL_FOR))[0].full_from_bytes, None);
        fleet.record_freed(&name("a"));
        assert_eq!(fleet.health(NOW)[0].1, Health::Ok);
    }

    #[test]
    fn away_is_reported_before_frozen_and_full() {
        let fleet = Fleet::new(vec![memory("a")]).expect("one name");
        let word = || fleet.health(NOW)[0].1.as_str();
        fleet.record_no_space(&name("a"), 10, NOW);
        assert_eq!(word(), "full");
        fleet.set_frozen(&name("a"), Some("wrong disk".to_owned()));
        assert_eq!(word(), "frozen");
        for _ in 0..2 {
            fleet.record_probe(&name("a"), Err("no answer".to_owned()), NOW);
        }
        assert_eq!(word(), "away");
        assert!(!fleet.views(NOW)[0].reachable);
        fleet.record_probe(&name("a"), Ok(()), NOW);
        assert_eq!(word(), "frozen");
    }

    #[test]
    fn backends_keep_their_order_and_names_are_unique() {
        let fleet = Fleet::new(vec![memory("b"), memory("a")]).expect("two names");
        let names: Vec<_> = fleet.backends().map(|backend| backend.name().to_string()).collect();
        assert_eq!(names, ["b", "a"]);
        assert!(fleet.get(&name("c")).is_none());
        assert!(Fleet::new(vec![memory("a"), memory("a")]).is_err());
    }
}
