//! Tests of the worker that deletes expired objects.

use std::time::Duration;

use s3o_model::ids::BucketId;

use super::fixture::{ContentStanding, Fixture, at_once};
use super::races::both;
use crate::params;

const MINUTE: Duration = Duration::from_mins(1);
const STUCK: Duration = Duration::from_hours(2);

/// Creates objects with these keys that have expired.
async fn expired(fixture: &Fixture, names: &[&str]) -> BucketId {
    let bucket = fixture.bucket("expiring").await;
    for name in names {
        fixture.put_expiring(bucket, name, 1, MINUTE).await;
    }
    fixture.clock.advance(MINUTE);
    bucket
}

/// Claims are bounded, and the bytes are queued with the rows. Other objects stay.
pub async fn expired_objects_are_claimed_once_and_deleted(fixture: &Fixture) {
    let bucket = expired(fixture, &["a", "b", "c"]).await;
    fixture.put(bucket, "permanent", 1).await;
    fixture.put_expiring(bucket, "alive", 1, MINUTE).await;
    let ((first, two), (second, one)) = (fixture.claim_expiries(2).await, fixture.claim_expiries(2).await);
    assert_eq!((two, one, fixture.claim_expiries(2).await.1), (2, 1, 0));
    assert_eq!(fixture.remove_claimed(first).await, ["a", "b"]);
    let removed = fixture.catalog.remove_claimed(second).await.expect("removed");
    assert_eq!((removed[0].bucket.as_str(), removed[0].key.as_str(), removed[0].size_bytes), ("expiring", "c", 1));
    assert_eq!((fixture.number("SELECT count(*) FROM objects").await, fixture.queued().await.len()), (2, 3));
    assert_eq!(fixture.usage().await, (2, 3, 0));
}

/// Two objects share a content and expire a minute apart.
pub async fn shared_bytes_are_queued_with_the_last_expired_object(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    let shared = fixture.put_expiring(bucket, "a", 5, MINUTE).await;
    fixture.copy_expiring((shared, 5), bucket, "b", 2 * MINUTE).await;
    for (key, standing) in [("a", ContentStanding::Live(1)), ("b", ContentStanding::Condemned)] {
        fixture.clock.advance(MINUTE);
        let (token, _) = fixture.claim_expiries(9).await;
        assert_eq!(fixture.remove_claimed(token).await, [key]);
        assert_eq!(fixture.standing(shared).await, standing);
    }
    assert_eq!(fixture.usage().await, (0, 5, 0));
}

/// Four of five objects with the same content are deleted in one unit.
pub async fn batch_releases_shared_content_once_per_object(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    let shared = fixture.put_expiring(bucket, "a", 5, MINUTE).await;
    for key in ["b", "c", "d"] {
        fixture.copy_expiring((shared, 5), bucket, key, MINUTE).await;
    }
    fixture.copy((shared, 5), bucket, "stays").await.expect("copied");
    fixture.clock.advance(MINUTE);
    let (token, _) = fixture.claim_expiries(9).await;
    assert_eq!(fixture.remove_claimed(token).await.len(), 4);
    assert_eq!(fixture.standing(shared).await, ContentStanding::Live(1));
}

/// A put and a copy after the claim both end it.
pub async fn object_rewritten_after_its_claim_is_kept(fixture: &Fixture) {
    let bucket = expired(fixture, &["copied", "gone", "put"]).await;
    let (token, _) = fixture.claim_expiries(9).await;
    let fresh = fixture.put(bucket, "put", 7).await;
    fixture.copy((fresh, 7), bucket, "copied").await.expect("copied");
    assert_eq!(fixture.remove_claimed(token).await, ["gone"]);
    assert_eq!(fixture.standing(fresh).await, ContentStanding::Live(2));
    assert!(fixture.resolve("expiring", "copied").await.object.is_some());
}

/// `reset_stuck` took the claim away. The next claim deletes the object, which was never readable in between.
pub async fn lost_claim_deletes_nothing(fixture: &Fixture) {
    expired(fixture, &["a"]).await;
    let (slow, _) = fixture.claim_expiries(9).await;
    fixture.clock.advance(STUCK);
    assert_eq!(fixture.catalog.reset_stuck(STUCK, 9).await.expect("reset").len(), 1);
    assert_eq!(fixture.remove_claimed(slow).await, Vec::<String>::new());
    assert_eq!(fixture.resolve("expiring", "a").await.object, None, "never readable in between");
    let (next, count) = fixture.claim_expiries(9).await;
    assert_eq!((count, fixture.remove_claimed(slow).await.len()), (1, 0));
    assert_eq!(fixture.remove_claimed(next).await, ["a"]);
    assert_eq!(fixture.remove_claimed(next).await, Vec::<String>::new());
}

/// Intents of other keys are not flagged.
pub async fn deleting_expired_object_supersedes_open_intents(fixture: &Fixture) {
    let bucket = expired(fixture, &["a"]).await;
    fixture.staged(bucket, "a", 1).await;
    fixture.staged(bucket, "b", 1).await;
    let (token, _) = fixture.claim_expiries(9).await;
    fixture.remove_claimed(token).await;
    let flagged = fixture.rows("SELECT key FROM pending_objects WHERE superseded = $1", params![1]).await;
    assert_eq!(flagged.iter().map(|row| row.text("key").expect("a key")).collect::<Vec<_>>(), ["a"]);
}

/// A wrong count fails the unit of its object. Halving the claim isolates it: the others are deleted, and a finding
/// names the one that is not.
pub async fn one_bad_row_stops_no_other(fixture: &Fixture) {
    let bucket = expired(fixture, &["a", "c", "d"]).await;
    let bad = fixture.put_expiring(bucket, "b", 1, Duration::from_millis(1)).await;
    fixture.clock.advance(MINUTE);
    fixture.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![bad]).await;
    let mut claims = vec![fixture.claim_expiries(9).await.0];
    let mut removed = Vec::new();
    while let Some(token) = claims.pop() {
        let Ok(objects) = fixture.catalog.remove_claimed(token).await else {
            let other = fixture.token();
            match fixture.catalog.halve_claim(token, other).await.expect("halved") {
                0 => fixture.catalog.note_unremovable(token, "count below zero").await.expect("noted"),
                _ => claims.extend([token, other]),
            }
            continue;
        };
        removed.extend(objects.into_iter().map(|object| object.key));
    }
    removed.sort_unstable();
    assert_eq!(removed, ["a", "c", "d"]);
    let findings = "SELECT physical_key, detail FROM findings WHERE kind = 'not_expired' AND size_bytes = $1";
    let found = fixture.rows(findings, params![1]).await;
    let reported: Vec<_> =
        found.iter().map(|row| (row.text("physical_key").expect("a name"), row.text("detail").expect("why"))).collect();
    assert_eq!(reported, [("expiring/b", "count below zero")]);
    assert_eq!(fixture.claim_expiries(9).await.1, 0, "it is skipped");
    fixture.change("UPDATE contents SET ref_count = 1 WHERE id = $1", params![bad]).await;
    fixture.clock.advance(STUCK);
    assert_eq!(fixture.catalog.reset_stuck(STUCK, 9).await.expect("reset").len(), 1);
    let (token, _) = fixture.claim_expiries(9).await;
    assert_eq!(fixture.remove_claimed(token).await, ["b"]);
    assert_eq!(fixture.number("SELECT count(*) FROM findings").await, 0);
}

/// Claimed rows count too.
pub async fn oldest_due_reports_expired_objects(fixture: &Fixture) {
    let waited = || async { fixture.catalog.oldest_due(STUCK).await.expect("a query").expiry };
    expired(fixture, &["a"]).await;
    assert_eq!(waited().await, Duration::ZERO);
    fixture.clock.advance(MINUTE);
    assert_eq!(waited().await, MINUTE);
    let (token, _) = fixture.claim_expiries(9).await;
    assert_eq!(waited().await, MINUTE, "the worker that claimed it may be dead");
    fixture.remove_claimed(token).await;
    assert_eq!(waited().await, Duration::ZERO);
}

/// Four workers delete every object, each object once.
pub async fn concurrent_expiry_claims_never_overlap(fixture: &Fixture) {
    let names: Vec<String> = (0..40).map(|number| format!("k{number:02}")).collect();
    expired(fixture, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let worker = |fixture: Fixture| async move {
        let mut removed = Vec::new();
        loop {
            let (token, count) = fixture.claim_expiries(3).await;
            removed.extend(fixture.remove_claimed(token).await);
            if count == 0 {
                return removed;
            }
        }
    };
    let mut removed = at_once((0..4).map(|_| worker(fixture.clone())).collect()).await.concat();
    // A worker skips rows that another one has locked, so it may end before all rows are deleted.
    removed.extend(worker(fixture.clone()).await);
    removed.sort_unstable();
    assert_eq!(removed, names);
}

/// The commit runs before or after the removal.
pub async fn object_written_during_removal_is_kept(fixture: &Fixture) {
    let bucket = expired(fixture, &["a"]).await;
    for round in 0..20 {
        let (token, _) = fixture.claim_expiries(9).await;
        let intent = fixture.staged(bucket, "a", 2).await;
        let (remover, writer) = (fixture.clone(), fixture.clone());
        let removal = async move { remover.remove_claimed(token).await };
        let write = async move { writer.commit(&intent, s3o_model::conditions::WriteCondition::None).await };
        let (_, written) = both(removal, write, round).await;
        written.expect("committed");
        assert!(fixture.resolve("expiring", "a").await.object.is_some());
        fixture.put_expiring(bucket, "a", 1, Duration::from_millis(1)).await;
        fixture.clock.advance(Duration::from_millis(1));
    }
}

/// The copy refers to live content, or the content is condemned and the copy fails.
pub async fn copy_during_removal_keeps_bytes_or_fails(fixture: &Fixture) {
    let bucket = fixture.bucket("expiring").await;
    for round in 0..20 {
        let content = fixture.put_expiring(bucket, "a", 1, MINUTE).await;
        fixture.clock.advance(MINUTE);
        let (token, _) = fixture.claim_expiries(9).await;
        let (ours, theirs) = (fixture.clone(), fixture.clone());
        let removal = async move { ours.remove_claimed(token).await };
        let copy = async move { theirs.copy((content, 1), bucket, "copy").await };
        let (removed, copied) = both(removal, copy, round).await;
        assert_eq!(removed, ["a"]);
        let standing = if copied.is_ok() { ContentStanding::Live(1) } else { ContentStanding::Condemned };
        assert_eq!(fixture.standing(content).await, standing);
        fixture.delete(bucket, "copy").await;
    }
}
