//! All backends, in the order in which they are configured, with what is known of each.
//!
//! What is known changes while requests run, so readers take a snapshot: whoever holds one sees
//! one consistent state.

use std::sync::{Arc, PoisonError, RwLock};

use s3o_model::names::BackendName;
use s3o_model::placement::BackendView;

use crate::{SharedBackend, Traits};

/// What is known of one backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// What it was found to do, once it was reached.
    pub traits: Option<Traits>,
    /// Why it is frozen, if it is: no destructive work, and no writes.
    pub frozen: Option<String>,
}

#[derive(Debug)]
struct Member {
    backend: SharedBackend,
    standing: RwLock<Arc<Standing>>,
}

impl Member {
    fn standing(&self) -> Arc<Standing> {
        Arc::clone(&self.standing.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Standing)) {
        let mut held = self.standing.write().unwrap_or_else(PoisonError::into_inner);
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
            fleet.members.push(Member { backend, standing: RwLock::default() });
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
    pub fn views(&self) -> Vec<BackendView> {
        let view = |member: &Member| BackendView {
            name: member.backend.name().clone(),
            writable: member.standing().frozen.is_none(),
            object_bytes_max: None,
            available_bytes: None,
        };
        self.members.iter().map(view).collect()
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
    use super::Fleet;
    use crate::{Memory, SharedBackend};
    use s3o_model::names::BackendName;
    use std::sync::Arc;

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
        assert!(fleet.views()[0].writable && !fleet.views()[1].writable);
        fleet.set_frozen(&name("a"), None);
        assert!(fleet.views()[1].writable);
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
