//! Guards whose removal alone does no damage, because a later check in the same or a following unit covers each of
//! them. They are kept because they refuse a lost claim or a useless write early. This table shows that they prevent
//! nothing else.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_model::conditions::WriteCondition;
use s3o_model::content::Location;
use s3o_model::copy_check::CopyState;
use s3o_model::ids::ContentId;

use super::Cut::{Guard, Words};
use super::commits::the_lease_of_one_copy_expires;
use super::{Damage, guards};
use crate::Late;
use crate::conformance::fixture::sharing::CopyCheck;
use crate::conformance::fixture::{Fixture, LEASE};

guards! { [sqlite]
    all_copies_of_a_write_are_fenced_together in the_lease_of_one_copy_expires: "claim_expired",
        [Words(" OR state = 'open'", "")], [];
    a_fenced_writer_is_refused_early in a_writer_and_a_reaper_resolve: "commit_put",
        [Words("WHERE write_id = $1 AND state = 'open'", "WHERE write_id = $1")], [];
    a_reaper_without_claim_is_refused_before_promotion in two_reapers_resolve: "commit_put",
        [Words("WHERE write_id = $1 AND token = $2", "WHERE write_id = $1")], [];
    a_reaper_without_claim_is_refused_before_abandoning in two_reapers_resolve: "abandon",
        [Words("token = $1 AND write_id = $2", "write_id = $2")], [];
    a_pin_is_refused_before_the_body_is_read in content_with_a_bad_copy_is_pinned: "pin",
        [Guard("AND l.state = 'present' LIMIT $2")], [];
    a_part_of_a_closed_upload_is_refused_before_its_bytes in a_part_is_staged_after_abort: "stage",
        [Words("AND state = 'open' /*share*/", "/*share*/")], [];
    a_claim_takes_only_expired_objects in an_object_is_claimed_before_it_expires: "claim_expiries",
        [Words(" AND expires_at <= :now", "")], [];
}

/// The removal checks the expiration of each row.
async fn an_object_is_claimed_before_it_expires(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    fixture.put_expiring(bucket, "expired", 5, Duration::from_secs(1)).await;
    fixture.clock.advance(Duration::from_secs(2));
    fixture.put_expiring(bucket, "alive", 5, Duration::from_mins(1)).await;
    let (token, _) = fixture.claim_expiries(9).await;
    fixture.catalog.remove_claimed(token).await.map(drop).unwrap_or_default();
    assert!(fixture.resolve("data", "alive").await.object.is_some());
    Damage::new()
}

/// The first of them deletes the intent, and the other one finds none.
async fn a_writer_and_a_reaper_resolve(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let intent = fixture.staged(bucket, "a", 5).await;
    fixture.clock.advance(LEASE);
    let token = fixture.claim_expired_writes(1).await;
    let committed = fixture.commit(&intent, WriteCondition::None).await.is_ok();
    let abandoned = fixture.catalog.abandon(token, intent.write, Duration::ZERO).await.expect("an answer");
    assert_ne!(committed, abandoned);
    Damage::new()
}

async fn two_reapers_resolve(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    for slow_promotes in [true, false] {
        let intent = fixture.staged(bucket, "a", 5).await;
        fixture.clock.advance(LEASE);
        let slow = fixture.claim_expired_writes(1).await;
        fixture.clock.advance(LEASE);
        let fast = fixture.claim_expired_writes(1).await;
        let (promoter, abandoner) = if slow_promotes { (slow, fast) } else { (fast, slow) };
        let abandon =
            async || fixture.catalog.abandon(abandoner, intent.write, Duration::ZERO).await.expect("an answer");
        let promote = async || fixture.promote(&intent, promoter).await.is_ok();
        let resolved =
            if slow_promotes { [promote().await, abandon().await] } else { [abandon().await, promote().await] };
        assert!(resolved[0] != resolved[1], "exactly one of them resolved the write");
    }
    Damage::new()
}

async fn a_part_is_staged_after_abort(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let upload = fixture.upload(bucket, "a").await;
    let mut part = fixture.intent(bucket, "a", 5);
    part.kind = s3o_model::intent::IntentKind::Part { upload, number: 1 };
    fixture.catalog.abort_upload(upload).await.expect("aborted");
    if fixture.try_stage(&part).await.is_ok() {
        fixture.commit_part(&part).await.expect_err("the upload is closed");
        assert!(fixture.catalog.drop_write(part.write, Late::No).await.expect("dropped").was_open);
    }
    Damage::new()
}

/// Reports a good copy that another reader marks suspect during the check.
struct OvertakenCheck {
    fixture: Fixture,
    content: ContentId,
}

#[async_trait]
impl CopyCheck for OvertakenCheck {
    async fn check(&self, _copy: &Location, _size_bytes: u64) -> CopyState {
        self.fixture.set_copy_states(self.content, "suspect").await;
        CopyState::Good
    }
}

/// The commit checks for a good copy again.
async fn content_with_a_bad_copy_is_pinned(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let content = fixture.share(bucket, "a", 1).await;
    fixture.check_copies_by(Arc::new(OvertakenCheck { fixture: fixture.clone(), content }));
    let pin = fixture.pin_of(bucket, "b", 1);
    if fixture.pin(&pin).await.expect("an answer").is_some() {
        fixture.commit_pinned(&pin, content).await.expect_err("no good copy");
        assert!(fixture.catalog.drop_write(pin.write, Late::No).await.expect("dropped").was_open);
    }
    Damage::new()
}
