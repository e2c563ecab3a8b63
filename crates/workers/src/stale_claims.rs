//! Release of stale claims on cleanups, shared by the workers that do it.

use std::time::Duration;

use s3o_catalog::Catalog;
use s3o_model::ids::ClaimToken;

use crate::{Error, Event, Report};

/// Outcome under which every worker counts a released claim.
pub(crate) const RECOVERED: &str = "recovered";

/// Releases claims older than `grace`. Only the worker that released a claim counts and audits it.
pub(crate) async fn release(
    cleanups: &Catalog,
    grace: Duration,
    token: ClaimToken,
    report: &mut Report,
) -> Result<(), Error> {
    for claim in cleanups.free_stale_claims(grace, token).await? {
        report.count_at(RECOVERED, &claim.backend);
        let event = Event::new("cleanup_queue.claim_recovered");
        let event = event.at(&claim.backend, &claim.physical_key, claim.size_bytes);
        report.events.push(event.with("claimed_by", claim.claimed_by));
    }
    Ok(())
}
