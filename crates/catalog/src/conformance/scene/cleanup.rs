//! Shortcuts for facts about cleanup.

use std::time::Duration;

use s3o_model::cleanup::{Cleanup, Outcome};
use s3o_model::ids::ClaimToken;
use s3o_model::intent::Expired;

use super::{LEASE, Scene, backend};
use crate::{Ages, Cleanups, Contents, Intents, Settlement, Waiting};

/// How old things must be before cleanup deals with them in the suite.
pub const AGE: Duration = Duration::from_mins(10);

impl Scene {
    /// What waits for cleanup on `disk` and `cloud`.
    pub async fn waiting(&self) -> Waiting {
        let ages = Ages { claims: AGE, joined: AGE, answers: AGE, condemned: AGE };
        self.catalog.waiting(&[backend("cloud"), backend("disk")], &ages).await.expect("a look")
    }

    /// Claims what is due on `disk`.
    pub async fn claim(&self, limit: usize) -> (ClaimToken, Vec<Cleanup>) {
        let claimant = self.claimant();
        let claimed = self.catalog.claim_cleanups(&backend("disk"), limit, &claimant).await.expect("claimed").cleanups;
        (claimant.token, claimed)
    }

    /// Settles all of these in one way; how many carried the token is returned.
    pub async fn settle(&self, token: ClaimToken, cleanups: &[Cleanup], outcome: &Outcome) -> usize {
        let settlements: Vec<Settlement> =
            cleanups.iter().map(|cleanup| Settlement { id: cleanup.id, outcome: outcome.clone() }).collect();
        self.catalog.settle_cleanups(token, &settlements).await.expect("settled").len()
    }

    /// Claims writes whose lease ran out, and gives them up.
    pub async fn reap(&self, limit: usize, late: Duration) -> Vec<Expired> {
        let token = self.token();
        let expired = self.catalog.claim_expired(token, limit, LEASE).await.expect("claimed");
        for intent in &expired {
            self.catalog.abandon(token, intent.write, late).await.expect("given up");
        }
        expired
    }

    /// Does all that cleanup does until nothing is left, with every graceful delay behind it.
    pub async fn clean_up(&self) {
        self.clock.advance(Duration::from_hours(48));
        self.reap(100_000, Duration::ZERO).await;
        while self.catalog.expand_closed_upload().await.expect("a step") {}
        while self.catalog.expand_joined(Duration::ZERO).await.expect("a step") {}
        loop {
            let (token, claimed) = self.claim(1000).await;
            if claimed.is_empty() {
                break;
            }
            assert_eq!(self.settle(token, &claimed, &Outcome::Done).await, claimed.len());
        }
        while self.catalog.forget_closed_uploads(Duration::ZERO).await.expect("a step") > 0 {}
        while self.catalog.forget_condemned(Duration::ZERO).await.expect("a step") > 0 {}
    }
}
