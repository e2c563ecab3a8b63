//! Single flight: of concurrent readers of the same body, one leader fetches it and the followers get
//! the same bytes.
//!
//! A failed or cancelled leader does not fail its followers: after a failure every follower fetches for
//! itself, and after a cancellation one follower becomes the leader.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use s3o_model::ids::ContentId;
use tokio::sync::watch;

/// What the leader shares with its followers.
#[derive(Debug, Clone)]
pub(crate) enum FetchResult {
    /// The complete body.
    Body(Bytes),
    /// No body to share: each follower fetches for itself.
    Nothing,
}

type ResultReceiver = watch::Receiver<Option<FetchResult>>;

/// The bodies being fetched.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashMap<ContentId, ResultReceiver>>>);

/// The role of a reader.
pub(crate) enum Role {
    /// Fetches the body for all.
    Leader(Leader),
    /// Waits for the leader.
    Follower(Follower),
}

/// The reader that fetches. Dropping it without `finish` makes a follower the leader.
pub(crate) struct Leader {
    in_flight: InFlight,
    content: ContentId,
    result: watch::Sender<Option<FetchResult>>,
}

/// A reader that waits.
pub(crate) struct Follower(ResultReceiver);

impl InFlight {
    /// Joins the fetch of a body, or starts one.
    pub(crate) fn join(&self, content: ContentId) -> Role {
        let mut fetches = self.fetches();
        if let Some(receiver) = fetches.get(&content) {
            return Role::Follower(Follower(receiver.clone()));
        }
        let (result, receiver) = watch::channel(None);
        fetches.insert(content, receiver);
        Role::Leader(Leader { in_flight: self.clone(), content, result })
    }

    /// Number of bodies being fetched.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.fetches().len()
    }

    fn fetches(&self) -> MutexGuard<'_, HashMap<ContentId, ResultReceiver>> {
        self.0.lock()
    }
}

impl Leader {
    /// Passes the result to the followers.
    pub(crate) fn finish(self, result: FetchResult) {
        self.result.send_replace(Some(result));
    }
}

impl Drop for Leader {
    /// The next reader starts a new fetch. Followers wake after that, when the sender is dropped, so the
    /// first of them becomes the leader.
    fn drop(&mut self) {
        self.in_flight.fetches().remove(&self.content);
    }
}

impl Follower {
    /// The leader's result; `None` if the leader was dropped before it finished.
    pub(crate) async fn result(mut self) -> Option<FetchResult> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|result| result.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{FetchResult, Follower, InFlight, Leader, Role};
    use bytes::Bytes;
    use s3o_model::ids::ContentId;
    use uuid::Uuid;

    const CONTENT: ContentId = ContentId::new(Uuid::nil());

    fn leader(in_flight: &InFlight) -> Leader {
        match in_flight.join(CONTENT) {
            Role::Leader(leader) => leader,
            Role::Follower(_) => panic!("a leader exists"),
        }
    }

    fn follower(in_flight: &InFlight) -> Follower {
        match in_flight.join(CONTENT) {
            Role::Follower(follower) => follower,
            Role::Leader(_) => panic!("no leader exists"),
        }
    }

    #[tokio::test]
    async fn followers_get_the_body_of_the_leader() {
        let in_flight = InFlight::default();
        let leader = leader(&in_flight);
        let followers = [follower(&in_flight), follower(&in_flight)];
        leader.finish(FetchResult::Body(Bytes::from_static(b"abc")));
        for follower in followers {
            assert!(matches!(follower.result().await, Some(FetchResult::Body(body)) if body == "abc"));
        }
        assert_eq!(in_flight.count(), 0);
    }

    #[tokio::test]
    async fn failed_leader_releases_its_followers() {
        let in_flight = InFlight::default();
        let leader = leader(&in_flight);
        let follower = follower(&in_flight);
        leader.finish(FetchResult::Nothing);
        assert!(matches!(follower.result().await, Some(FetchResult::Nothing)));
    }

    #[tokio::test]
    async fn dropped_leader_is_replaced() {
        let in_flight = InFlight::default();
        let first = leader(&in_flight);
        let follower = follower(&in_flight);
        drop(first);
        assert!(follower.result().await.is_none());
        leader(&in_flight).finish(FetchResult::Nothing);
        assert_eq!(in_flight.count(), 0);
    }
}
