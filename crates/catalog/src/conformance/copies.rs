//! Tests of copy checks: a write checks the copies of content before it joins it, and bad copies become suspect.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_model::content::{CopyTrust, Location, ReadableCopy};
use s3o_model::copy_check::CopyState;
use s3o_model::ids::{BucketId, ContentId};
use s3o_model::intent::Intent;

use super::fixture::sharing::{BODY_BYTES, CopyCheck, digest};
use super::fixture::{ContentStanding, Fixture, LEASE, announced, backend};
use super::quota_usage;
use super::races::{ROUNDS, assert_nothing_leaks, both};
use crate::{CommitPut, ContentPlan, PartSource, StoredBytes};

/// Answers for the copies on each backend, and the number of checks.
#[derive(Default)]
struct CopyAnswers(Mutex<(HashMap<String, CopyState>, usize)>);

#[async_trait]
impl CopyCheck for CopyAnswers {
    async fn check(&self, copy: &Location, size_bytes: u64) -> CopyState {
        assert_eq!(size_bytes, BODY_BYTES);
        let mut state = self.0.lock();
        state.1 += 1;
        state.0.get(&copy.backend.to_string()).copied().unwrap_or(CopyState::Good)
    }
}

impl CopyAnswers {
    fn installed_in(fixture: &Fixture) -> Arc<Self> {
        let answers = Arc::new(Self::default());
        fixture.check_copies_by(answers.clone());
        answers
    }

    fn set(&self, backend: &str, state: CopyState) {
        self.0.lock().0.insert(backend.to_owned(), state);
    }

    /// Number of checks since the last call.
    fn take_count(&self) -> usize {
        std::mem::take(&mut self.0.lock().1)
    }
}

async fn copy_of(fixture: &Fixture, content: ContentId) -> Location {
    let physical_key = fixture.copies_of(content).await.remove(0).0;
    Location { backend: backend("disk"), physical_key, backend_version: None }
}

async fn states(fixture: &Fixture, content: ContentId) -> Vec<String> {
    fixture.copies_of(content).await.into_iter().map(|(_, state)| state).collect()
}

/// The second call returns false. Quotas do not change, and the copy is still read if there is no better one.
pub async fn copy_is_marked_suspect_once(fixture: &Fixture) {
    let bucket = fixture.bucket("bad").await;
    let content = fixture.share(bucket, "a", 1).await;
    let copy = copy_of(fixture, content).await;
    assert!(fixture.catalog.suspect(content, &copy).await.expect("marked"));
    assert!(!fixture.catalog.suspect(content, &copy).await.expect("marked before"));
    assert_eq!((states(fixture, content).await, fixture.usage().await), (vec!["suspect".to_owned()], (5, 0, 0)));
    let found = fixture.resolve("bad", "a").await.whole.expect("whole");
    assert_eq!(found.copies, [ReadableCopy { location: copy, trust: CopyTrust::Suspect }]);
}

/// A late reader may report a copy that was replaced or deleted in the meantime. Nothing changes then.
pub async fn only_the_copy_that_was_read_is_marked_suspect(fixture: &Fixture) {
    let (bucket, other) = (fixture.bucket("late").await, fixture.bucket("other").await);
    let content = fixture.share(bucket, "a", 1).await;
    let read = copy_of(fixture, content).await;
    assert!(fixture.catalog.suspect(content, &read).await.expect("marked"));
    fixture.share(bucket, "b", 1).await;
    assert!(!fixture.catalog.suspect(content, &read).await.expect("replaced"));
    let now = copy_of(fixture, content).await;
    let elsewhere = Location { backend: backend("cloud"), ..now.clone() };
    assert!(!fixture.catalog.suspect(content, &elsewhere).await.expect("not there"));
    let apart = fixture.share(other, "a", 1).await;
    assert!(!fixture.catalog.suspect(apart, &now).await.expect("not its copy"));
    assert_eq!(
        (states(fixture, content).await, states(fixture, apart).await),
        (vec!["present".into()], vec!["present".into()])
    );
    assert!(fixture.delete(bucket, "a").await && fixture.delete(bucket, "b").await);
    assert!(!fixture.catalog.suspect(content, &now).await.expect("gone"));
    assert_eq!(fixture.standing(content).await, ContentStanding::Condemned);
}

/// A write of new content checks no copy.
pub async fn known_content_is_checked_once(fixture: &Fixture) {
    let (bucket, answers) = (fixture.bucket("good").await, CopyAnswers::installed_in(fixture));
    let content = fixture.share(bucket, "a", 1).await;
    assert_eq!(fixture.pin(&fixture.pin_of(bucket, "b", 2)).await.expect("a query"), None);
    assert_eq!(answers.take_count(), 0);
    assert_eq!(fixture.share(bucket, "b", 1).await, content);
    assert_eq!(answers.take_count(), 1);
    let (pin, _) = fixture.pinned(bucket, "c", 1).await;
    fixture.commit_pinned(&pin, content).await.expect("committed");
    assert_eq!((answers.take_count(), fixture.standing(content).await), (1, ContentStanding::Live(3)));
}

/// Content with a bad copy is not pinned. The next write of the same bytes provides the new copy for all objects.
pub async fn bad_copy_is_replaced_by_the_next_write(fixture: &Fixture) {
    let (bucket, answers) = (fixture.bucket("bad").await, CopyAnswers::installed_in(fixture));
    let content = fixture.share(bucket, "a", 1).await;
    for (round, name) in ["b", "a", "c"].into_iter().enumerate() {
        let old = copy_of(fixture, content).await.physical_key;
        answers.set("disk", CopyState::Bad);
        assert_eq!(fixture.pin(&fixture.pin_of(bucket, name, 1)).await.expect("a query"), None);
        assert_eq!(states(fixture, content).await, ["suspect"]);
        assert_eq!(answers.take_count(), 1);
        let intent = fixture.staged(bucket, name, BODY_BYTES).await;
        fixture.commit_put(fixture.shared_put_of(&intent, 1)).await.expect("committed");
        assert_eq!(answers.take_count(), 0, "a suspect copy is not checked");
        assert_eq!(fixture.copies_of(content).await, [(intent.physical_key, "present".to_owned())]);
        assert!(fixture.queued().await.contains(&old) && fixture.queued().await.len() == round + 1);
        quota_usage::check(fixture).await;
    }
    answers.set("disk", CopyState::Good);
    assert_eq!(
        (fixture.standing(content).await, fixture.share(bucket, "d", 1).await),
        (ContentStanding::Live(3), content)
    );
}

/// Writes without a declared digest, promoted writes and parts are checked when they commit.
pub async fn bad_copy_is_found_by_the_commit(fixture: &Fixture) {
    let (bucket, answers) = (fixture.bucket("bad").await, CopyAnswers::installed_in(fixture));
    let content = fixture.share(bucket, "a", 1).await;
    answers.set("disk", CopyState::Bad);
    let intent = fixture.staged(bucket, "b", BODY_BYTES).await;
    fixture.commit_put(fixture.shared_put_of(&intent, 1)).await.expect("committed");
    assert_eq!(fixture.copies_of(content).await, [(intent.physical_key, "present".to_owned())]);
    let left = fixture.staged(bucket, "c", BODY_BYTES).await;
    fixture.clock.advance(LEASE);
    let token = fixture.token();
    assert_eq!(fixture.catalog.claim_expired(token, 9, LEASE).await.expect("claimed").len(), 1);
    let stored =
        StoredBytes::Reaped { write: left.write, copies: 1, backend_versions: Vec::new(), failed: Vec::new(), token };
    let put = CommitPut { stored, ..fixture.shared_put_of(&left, 1) };
    fixture.commit_put(put).await.expect("promoted");
    assert_eq!(fixture.copies_of(content).await, [(left.physical_key, "present".to_owned())]);
    let part = shared_part(fixture, bucket).await;
    assert_eq!(fixture.copies_of(content).await, [(part.physical_key, "present".to_owned())]);
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Live(4), (5, 15, 0)));
}

/// Uploads a part with the same body as the objects of these tests.
async fn shared_part(fixture: &Fixture, bucket: BucketId) -> Intent {
    let upload = fixture.upload(bucket, "parts").await;
    let intent = fixture.staged_part(upload, 1, BODY_BYTES).await;
    let (stored, sha256) = (announced(intent.write, 1), Some(digest(1)));
    let source = PartSource::Written { stored, sha256, plan: ContentPlan::Fresh(Some(bucket)) };
    let part = fixture.part_of(upload, 1, (fixture.content(), BODY_BYTES), source);
    fixture.store_part(part).await.expect("committed");
    intent
}

/// It is not pinned or marked suspect either, and the write keeps its own bytes. Once the check finds a good copy,
/// later writes join the content again.
pub async fn content_with_unclear_copies_is_not_joined(fixture: &Fixture) {
    let (bucket, answers) = (fixture.bucket("away").await, CopyAnswers::installed_in(fixture));
    let content = fixture.share(bucket, "a", 1).await;
    answers.set("disk", CopyState::Unclear);
    assert_eq!(fixture.pin(&fixture.pin_of(bucket, "b", 1)).await.expect("a query"), None);
    let own = [fixture.share_on("cloud", bucket, "b", 1).await, fixture.share_on("cloud", bucket, "c", 1).await];
    assert!(own[0] != content && own[1] != content && own[0] != own[1]);
    shared_part(fixture, bucket).await;
    assert_eq!(
        (states(fixture, content).await, fixture.standing(content).await),
        (vec!["present".into()], ContentStanding::Live(1))
    );
    assert_eq!((fixture.queued().await.len(), fixture.usage().await), (0, (10, 0, 0)));
    answers.set("disk", CopyState::Good);
    assert_eq!(fixture.share(bucket, "d", 1).await, content);
    assert_eq!(fixture.standing(content).await, ContentStanding::Live(2));
}

/// Bad copies that are checked before the good one become suspect.
pub async fn one_good_copy_is_enough_to_join(fixture: &Fixture) {
    let (bucket, answers) = (fixture.bucket("two").await, CopyAnswers::installed_in(fixture));
    fixture.attach("cloud", None).await;
    let disk = fixture.staged(bucket, "a", BODY_BYTES).await;
    let cloud = Intent { backend: backend("cloud"), write: disk.write, ..fixture.intent(bucket, "a", BODY_BYTES) };
    fixture.try_stage(&cloud).await.expect("staged");
    let put = CommitPut { stored: announced(disk.write, 2), ..fixture.shared_put_of(&disk, 1) };
    fixture.commit_put(put).await.expect("committed");
    let content = fixture.content_of(bucket, "a").await;
    answers.set("cloud", CopyState::Bad);
    let (pin, _) = fixture.pinned(bucket, "b", 1).await;
    fixture.commit_pinned(&pin, content).await.expect("committed");
    assert_eq!(states(fixture, content).await, ["suspect", "present"]);
    answers.set("disk", CopyState::Unclear);
    assert_ne!(fixture.share(bucket, "c", 1).await, content, "the other copy is unclear");
    assert_eq!(states(fixture, content).await, ["suspect", "present"]);
}

/// The write joins the content whose only copy is marked suspect at the same time.
pub async fn concurrent_suspicion_and_write_keep_quotas_exact(fixture: &Fixture) {
    let bucket = fixture.bucket("race").await;
    for round in 0..ROUNDS {
        let content = fixture.share(bucket, "a", 1).await;
        let copy = copy_of(fixture, content).await;
        let intent = fixture.staged(bucket, "b", BODY_BYTES).await;
        let (ours, theirs) = (fixture.clone(), fixture.clone());
        let put = ours.shared_put_of(&intent, 1);
        let write = async move { ours.commit_put(put).await.map(drop) };
        let suspect = async move { theirs.catalog.suspect(content, &copy).await };
        let (written, marked) = both(write, suspect, round).await;
        written.expect("committed");
        assert!(marked.expect("marked"));
        assert_eq!(
            (fixture.standing(content).await, fixture.copies_of(content).await.len()),
            (ContentStanding::Live(2), 1)
        );
        quota_usage::check(fixture).await;
        assert_nothing_leaks(fixture, bucket).await;
    }
}
