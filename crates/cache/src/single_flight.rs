//! Single flight: of many readers who want the same body at once, one fetches it and the others
//! get what it fetched.
//!
//! One that fails or is given up harms nobody: after a failure every follower reads for itself,
//! and where the leader went away one of the followers takes its place.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use s3o_model::ids::ContentId;
use tokio::sync::watch;

/// What became of a flight that came to an end.
#[derive(Debug, Clone)]
pub(crate) enum Landing {
    /// The body, whole.
    Body(Bytes),
    /// There is none to share: read for yourself.
    Nothing,
}

type Awaited = watch::Receiver<Option<Landing>>;

/// The bodies that are being fetched.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flights(Arc<Mutex<HashMap<ContentId, Awaited>>>);

/// What a reader is to do.
pub(crate) enum Seat {
    /// Fetch the body, for all.
    Leader(Leader),
    /// Wait for it.
    Follower(Follower),
}

/// The one who fetches. Dropped without a word, its place is free.
pub(crate) struct Leader {
    flights: Flights,
    content: ContentId,
    landing: watch::Sender<Option<Landing>>,
}

/// One who waits.
pub(crate) struct Follower(Awaited);

impl Flights {
    /// Joins the flight of a body, or begins one.
    pub(crate) fn join(&self, content: ContentId) -> Seat {
        let mut flying = self.flying();
        if let Some(awaited) = flying.get(&content) {
            return Seat::Follower(Follower(awaited.clone()));
        }
        let (landing, awaited) = watch::channel(None);
        flying.insert(content, awaited);
        Seat::Leader(Leader { flights: self.clone(), content, landing })
    }

    /// How many bodies are being fetched.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.flying().len()
    }

    fn flying(&self) -> MutexGuard<'_, HashMap<ContentId, Awaited>> {
        self.0.lock()
    }
}

impl Leader {
    /// Gives the followers what there is.
    pub(crate) fn land(self, landing: Landing) {
        self.landing.send_replace(Some(landing));
    }
}

impl Drop for Leader {
    /// Whoever comes now begins anew. Followers wake only after that, when the sender goes, so the
    /// first of them finds the place free.
    fn drop(&mut self) {
        self.flights.flying().remove(&self.content);
    }
}

impl Follower {
    /// What became of the flight; `None` if its leader went away before its end.
    pub(crate) async fn landing(mut self) -> Option<Landing> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|landing| landing.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{Flights, Follower, Landing, Leader, Seat};
    use bytes::Bytes;
    use s3o_model::ids::ContentId;
    use uuid::Uuid;

    const CONTENT: ContentId = ContentId::new(Uuid::nil());

    fn leader(flights: &Flights) -> Leader {
        match flights.join(CONTENT) {
            Seat::Leader(leader) => leader,
            Seat::Follower(_) => panic!("somebody leads already"),
        }
    }

    fn follower(flights: &Flights) -> Follower {
        match flights.join(CONTENT) {
            Seat::Follower(follower) => follower,
            Seat::Leader(_) => panic!("nobody leads"),
        }
    }

    #[tokio::test]
    async fn followers_get_what_the_leader_fetched() {
        let flights = Flights::default();
        let leader = leader(&flights);
        let followers = [follower(&flights), follower(&flights)];
        leader.land(Landing::Body(Bytes::from_static(b"abc")));
        for follower in followers {
            assert!(matches!(follower.landing().await, Some(Landing::Body(body)) if body == "abc"));
        }
        assert_eq!(flights.count(), 0);
    }

    #[tokio::test]
    async fn a_leader_that_fails_frees_its_followers() {
        let flights = Flights::default();
        let leader = leader(&flights);
        let follower = follower(&flights);
        leader.land(Landing::Nothing);
        assert!(matches!(follower.landing().await, Some(Landing::Nothing)));
    }

    #[tokio::test]
    async fn a_leader_that_goes_away_leaves_its_place() {
        let flights = Flights::default();
        let first = leader(&flights);
        let follower = follower(&flights);
        drop(first);
        assert!(follower.landing().await.is_none());
        leader(&flights).land(Landing::Nothing);
        assert_eq!(flights.count(), 0);
    }
}
