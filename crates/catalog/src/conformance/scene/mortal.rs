//! Shortcuts for facts about objects that expire.

use std::time::Duration;

use s3o_model::conditions::WriteCondition;
use s3o_model::expiry::Expiry;
use s3o_model::ids::{BucketId, ClaimToken, ContentId};

use super::Scene;
use crate::{CommitPut, Committed, Error, Expiries, Objects, PutRow};

impl Scene {
    /// Stores an object that expires; its content is returned.
    pub async fn try_mortal(
        &self,
        bucket: BucketId,
        key: &str,
        size_bytes: u64,
        expiry: Expiry,
    ) -> Result<(ContentId, Committed), Error> {
        let put = self.put_of(&self.staged(bucket, key, size_bytes).await, WriteCondition::None);
        let content = put.content;
        let put = CommitPut { row: PutRow { expiry: Some(expiry), ..put.row.clone() }, ..put };
        self.catalog.commit_put(put).await.map(|committed| (content, committed))
    }

    /// Stores an object that lives for so long; its content is returned.
    pub async fn mortal(&self, bucket: BucketId, key: &str, size_bytes: u64, live: Duration) -> ContentId {
        self.try_mortal(bucket, key, size_bytes, Expiry::After(live)).await.expect("committed").0
    }

    /// Copies content under a key that lives for so long.
    pub async fn mortal_copy(
        &self,
        source: (ContentId, u64),
        bucket: BucketId,
        key: &str,
        live: Duration,
    ) -> Committed {
        let row = self.row(bucket, key, source.0, source.1);
        let row = PutRow { expiry: Some(Expiry::After(live)), ..row };
        self.catalog.commit_copy(row, source.0, WriteCondition::None).await.expect("copied")
    }

    /// Claims what has expired; the token and how many.
    pub async fn claim_expiries(&self, limit: usize) -> (ClaimToken, usize) {
        let token = self.token();
        (token, self.catalog.claim_expiries(token, limit).await.expect("claimed"))
    }

    /// Removes what a token claimed; the keys that went.
    pub async fn remove_claimed(&self, token: ClaimToken) -> Vec<String> {
        let gone = self.catalog.remove_claimed(token).await.expect("removed");
        gone.into_iter().map(|object| object.key).collect()
    }
}
