//! Guards of capacity: writes stay within the quota of their backend, and frozen backends accept none.

use s3o_model::conditions::WriteCondition;

use super::Cut::Words;
use super::{Damage, broken, damage_if, guards};
use crate::conformance::fixture::{Fixture, backend, unannounced};
use crate::{CommitPut, Error};

const EXCEEDED: &str = "the limit was exceeded";
const FROZEN: &str = "a frozen backend accepted a write";

guards! { [sqlite]
    reservations_stay_within_the_limit in two_writes_together_exceed_the_limit: "stage",
        [Words("<= share_bytes", "<= share_bytes + 1000")], [EXCEEDED];
    unannounced_bytes_stay_within_the_limit in two_unannounced_writes_together_exceed_the_limit: "commit_put",
        [Words("<= share_bytes", "<= share_bytes + 1000")], [EXCEEDED];
    a_frozen_backend_takes_no_intent in a_write_is_staged_after_the_freeze: "stage",
        [Words(" AND frozen_reason IS NULL", "")], [FROZEN];
    a_frozen_backend_takes_no_unannounced_bytes in an_unannounced_write_is_committed_after_the_freeze: "commit_put",
        [Words(" AND frozen_reason IS NULL", "")], [FROZEN];
    a_reservation_is_counted in a_write_is_staged: "stage",
        [Words("reserved_bytes = reserved_bytes + $2", "reserved_bytes = reserved_bytes + $2 - $2")], [broken::QUOTAS];
}

async fn limit_exceeded(fixture: &Fixture) -> Damage {
    let quota_usage = fixture.quota_usage("disk").await;
    let taken = quota_usage.used_bytes + quota_usage.orphan_bytes + quota_usage.reserved_bytes;
    damage_if(quota_usage.limit_bytes.is_some_and(|limit| taken > limit), EXCEEDED)
}

async fn two_writes_together_exceed_the_limit(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.catalog.set_limit(&backend("disk"), Some(9)).await.expect("set");
    for name in ["a", "b"] {
        fixture.try_stage(&fixture.intent(bucket, name, 5)).await.map(drop).unwrap_or_default();
    }
    limit_exceeded(fixture).await
}

/// Commits bytes that were stored without an intent.
async fn commit_unannounced(fixture: &Fixture, bucket: s3o_model::ids::BucketId, name: &str) -> Result<(), Error> {
    let intent = fixture.intent(bucket, name, 5);
    let put = CommitPut { stored: unannounced(&intent), ..fixture.put_of(&intent, WriteCondition::None) };
    fixture.commit_put(put).await.map(drop)
}

async fn two_unannounced_writes_together_exceed_the_limit(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.catalog.set_limit(&backend("disk"), Some(9)).await.expect("set");
    for name in ["a", "b"] {
        commit_unannounced(fixture, bucket, name).await.unwrap_or_default();
    }
    limit_exceeded(fixture).await
}

async fn a_write_is_staged_after_the_freeze(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.set_frozen(&backend("disk"), Some("another disk")).await;
    damage_if(fixture.try_stage(&fixture.intent(bucket, "a", 5)).await.is_ok(), FROZEN)
}

async fn an_unannounced_write_is_committed_after_the_freeze(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.set_frozen(&backend("disk"), Some("another disk")).await;
    damage_if(commit_unannounced(fixture, bucket, "a").await.is_ok(), FROZEN)
}

async fn a_write_is_staged(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.staged(bucket, "a", 5).await;
    Damage::new()
}
