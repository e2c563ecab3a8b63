//! Shortcuts for facts about writes whose writer is gone, and about bytes that nobody announced.

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::ClaimToken;
use s3o_model::intent::Intent;

use super::{LEASE, Scene};
use crate::{CommitPut, Committed, Error, Intents, Landed, Objects, Unannounced};

/// Bytes that nobody announced, where this intent would have them.
#[must_use]
pub fn unannounced(intent: &Intent) -> Landed {
    Landed::Unannounced(Unannounced {
        backend: intent.backend.clone(),
        physical_key: intent.physical_key.clone(),
        size_bytes: intent.size_bytes,
        backend_version: Some("v1".to_owned()),
    })
}

impl Scene {
    /// Claims what writers that are gone have left, as a reaper does; it is so many copies.
    pub async fn claim_left(&self, copies: usize) -> ClaimToken {
        let token = self.token();
        assert_eq!(self.catalog.claim_expired(token, 9, LEASE).await.expect("claimed").len(), copies);
        token
    }

    /// What finishes a write whose copies a reaper has claimed.
    #[must_use]
    pub fn promotion(&self, intent: &Intent, token: ClaimToken, copies: usize) -> CommitPut {
        let landed = Landed::Reaped { write: intent.write, copies, token };
        CommitPut { landed, ..self.put_of(intent, WriteCondition::None) }
    }

    /// Finishes a write of one copy.
    pub async fn promote(&self, intent: &Intent, token: ClaimToken) -> Result<Committed, Error> {
        self.catalog.commit_put(self.promotion(intent, token, 1)).await
    }
}
