//! Takes claims of cleanups from those who hold them for too long, for every worker that does so.

use std::time::Duration;

use s3o_catalog::Cleanups;
use s3o_model::ids::ClaimToken;

use crate::{Error, Event, Report};

/// What a freed claim is counted as, whoever frees it.
pub(crate) const RECOVERED: &str = "recovered";

/// Frees claims older than `grace`; each is counted and told once, by the one who freed it.
pub(crate) async fn free(
    cleanups: &dyn Cleanups,
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
