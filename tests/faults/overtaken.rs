//! A queue whose claims are always freed before they can be settled, as if the worker had slept too long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_catalog::{
    Ages, Catalog, ClaimedCleanups, Cleanups, Depths, Error, FreedClaim, QueuedCleanup, Settlement, Waiting,
};
use s3o_model::claim::Claimant;
use s3o_model::cleanup::Selection;
use s3o_model::ids::{ClaimToken, CleanupId};
use s3o_model::names::BackendName;

pub struct Overtaken(pub Arc<Catalog>);

#[async_trait]
impl Cleanups for Overtaken {
    async fn waiting(&self, lanes: &[BackendName], ages: &Ages) -> Result<Waiting, Error> {
        self.0.waiting(lanes, ages).await
    }

    async fn claim_cleanups(
        &self,
        backend: &BackendName,
        limit: usize,
        claimant: &Claimant,
    ) -> Result<ClaimedCleanups, Error> {
        self.0.claim_cleanups(backend, limit, claimant).await
    }

    async fn settle_cleanups(
        &self,
        token: ClaimToken,
        settlements: &[Settlement],
    ) -> Result<BTreeSet<CleanupId>, Error> {
        let other = "00000000000000000000000000000001".parse().expect("a token");
        self.0.free_stale_claims(Duration::ZERO, other).await?;
        self.0.settle_cleanups(token, settlements).await
    }

    async fn free_stale_claims(&self, grace: Duration, token: ClaimToken) -> Result<Vec<FreedClaim>, Error> {
        self.0.free_stale_claims(grace, token).await
    }

    async fn queued_cleanups(&self, which: &Selection, after: i64, limit: usize) -> Result<Vec<QueuedCleanup>, Error> {
        self.0.queued_cleanups(which, after, limit).await
    }

    async fn depths(&self) -> Result<Depths, Error> {
        self.0.depths().await
    }
}
