//! Predicates that do no damage when they alone are cut: a row that is gone, or one that is asked itself before it is removed,
//! stands behind each of them. They are kept because
//! whoever lost a claim is told so at once; this table keeps us from taking them for more than that.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use s3o_model::conditions::WriteCondition;
use s3o_model::content::Location;
use s3o_model::ids::ContentId;
use s3o_model::proof::Proof;

use super::Cut::{Guard, Words};
use super::{Told, safeties};
use crate::conformance::scene::{LEASE, Scene};
use crate::{CopyProver, Expiries, Intents, Late, Uploads};

safeties! { [sqlite]
    a_writer_is_told_that_it_was_fenced by a_writer_and_a_reaper_resolve: "commit_put",
        [Words("WHERE write_id = $1 AND state = 'open'", "WHERE write_id = $1")], [];
    a_reaper_is_told_before_it_promotes by two_reapers_resolve: "commit_put",
        [Words("WHERE write_id = $1 AND token = $2", "WHERE write_id = $1")], [];
    a_reaper_is_told_before_it_gives_up by two_reapers_resolve: "abandon",
        [Words("token = $1 AND write_id = $2", "write_id = $2")], [];
    a_pin_is_refused_before_the_body_is_read by bad_content_is_pinned: "pin",
        [Guard("AND state = 'present' LIMIT 1")], [];
    a_part_is_told_before_it_is_written by a_part_begins_after_abort: "stage",
        [Words("AND state = 'open' /*share*/", "/*share*/")], [];
    a_claim_takes_what_has_expired by one_is_claimed_before_its_time: "claim_expiries",
        [Words(" AND expires_at <= :now", "")], [];
}

/// The removal asks each row itself.
async fn one_is_claimed_before_its_time(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.mortal(bucket, "expired", 5, Duration::from_secs(1)).await;
    scene.clock.advance(Duration::from_secs(2));
    scene.mortal(bucket, "alive", 5, Duration::from_mins(1)).await;
    let (token, _) = scene.claim_expiries(9).await;
    scene.catalog.remove_claimed(token).await.map(drop).unwrap_or_default();
    assert!(scene.resolve("house", "alive").await.object.is_some());
    Told::new()
}

/// Whoever is first takes the row, and the other finds none.
async fn a_writer_and_a_reaper_resolve(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let intent = scene.staged(bucket, "a", 5).await;
    scene.clock.advance(LEASE);
    let token = scene.claim_left(1).await;
    let committed = scene.commit(&intent, WriteCondition::None).await.is_ok();
    let given_up = scene.catalog.abandon(token, intent.write, Duration::ZERO).await.expect("a look");
    assert_ne!(committed, given_up);
    Told::new()
}

async fn two_reapers_resolve(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    for slow_promotes in [true, false] {
        let intent = scene.staged(bucket, "a", 5).await;
        scene.clock.advance(LEASE);
        let slow = scene.claim_left(1).await;
        scene.clock.advance(LEASE);
        let quick = scene.claim_left(1).await;
        let (promoter, quitter) = if slow_promotes { (slow, quick) } else { (quick, slow) };
        let given_up = async || scene.catalog.abandon(quitter, intent.write, Duration::ZERO).await.expect("a look");
        let finished = async || scene.promote(&intent, promoter).await.is_ok();
        let resolved =
            if slow_promotes { [finished().await, given_up().await] } else { [given_up().await, finished().await] };
        assert!(resolved[0] != resolved[1], "one of them resolved it");
    }
    Told::new()
}

async fn a_part_begins_after_abort(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let upload = scene.upload(bucket, "a").await;
    let mut part = scene.intent(bucket, "a", 5);
    part.kind = s3o_model::intent::IntentKind::Part { upload, number: 1 };
    scene.catalog.abort_upload(upload).await.expect("aborted");
    if scene.try_stage(&part).await.is_ok() {
        scene.commit_part(&part).await.expect_err("the upload is closed");
        assert!(scene.catalog.drop_write(part.write, Late::No).await.expect("given up").was_open);
    }
    Told::new()
}

/// Sees a good copy, which somebody else calls suspect before the answer is there.
struct Overtaken {
    scene: Scene,
    content: ContentId,
}

#[async_trait]
impl CopyProver for Overtaken {
    async fn prove(&self, _copy: &Location, _size_bytes: u64) -> Proof {
        self.scene.call(self.content, "suspect").await;
        Proof::Good
    }
}

/// The commit looks again.
async fn bad_content_is_pinned(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let content = scene.share(bucket, "a", 1).await;
    scene.catalog.prove_by(Arc::new(Overtaken { scene: scene.clone(), content }));
    let pin = scene.pin_of(bucket, "b", 1);
    if scene.catalog.pin(&pin).await.expect("a look").is_some() {
        scene.commit_pinned(&pin, content).await.expect_err("no good copy");
        assert!(scene.catalog.drop_write(pin.write, Late::No).await.expect("given up").was_open);
    }
    Told::new()
}
