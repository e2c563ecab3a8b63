//! Tests of moves between backends that are in use.

use std::time::Duration;

use s3o_model::content::Location;
use s3o_model::ids::ContentId;

use super::fixture::replicas::COPY_BYTES as SIZE;
use super::fixture::{Fixture, LEASE, backend};
use super::refused;
use crate::{IdentityRecord, Late, ReplacedCopy, ReplicaSource, Verdict};

const GRACE: Duration = Duration::from_mins(1);

fn rebalanced(copy: &Location) -> ReplicaSource {
    ReplicaSource::Rebalanced(ReplacedCopy { copy: copy.clone(), grace: GRACE })
}

/// A content with one copy, on `disk`.
async fn single(fixture: &Fixture) -> (ContentId, Location) {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    (content, fixture.copy_on(content, "disk").await)
}

/// The new copy is added and the old one released together; its bytes go after the grace.
pub async fn copy_is_moved_in_one_unit(fixture: &Fixture) {
    let (content, source) = single(fixture).await;
    let east = fixture.stage_replica(content, "east").await.expect("staged");
    fixture.commit_replica(&east, &source, rebalanced(&source)).await.expect("moved");
    assert_eq!(
        (fixture.places_of(content).await, fixture.queued().await),
        (vec!["east".into()], vec![source.physical_key])
    );
    let cleanup = fixture.rows("SELECT reason, due FROM cleanup_queue", vec![]).await;
    assert_eq!(cleanup[0].text("reason").expect("text"), "rebalance");
    assert_eq!(cleanup[0].int("due").expect("a number"), fixture.now().after(GRACE).millis());
    assert_eq!((fixture.counters("disk").await, fixture.counters("east").await), ((0, SIZE, 0), (SIZE, 0, 0)));
    assert!(fixture.copy_work(false).await.is_empty() && fixture.copy_work(true).await.is_empty());
}

/// Another unit has written a copy there in the meantime.
pub async fn move_to_a_backend_with_a_copy_is_refused(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk"], 2).await;
    let source = fixture.copy_on(content, "disk").await;
    let first = fixture.stage_replica(content, "east").await.expect("staged");
    fixture.commit_replica(&first, &source, ReplicaSource::Nothing).await.expect("copied");
    let second = fixture.stage_replica(content, "east").await.expect("staged");
    refused(fixture.commit_replica(&second, &source, rebalanced(&source)).await, Verdict::NotNeeded);
    assert_eq!(fixture.places_of(content).await, ["disk", "east"]);
}

/// Each state of a backend that takes it out of a rebalance, as SQL with the name of the backend.
const CHANGES: [&str; 5] = [
    "UPDATE backends SET draining = 1 WHERE name = $1",
    "UPDATE backends SET unhealthy_since = 1 WHERE name = $1",
    "UPDATE backends SET removing_since = 1 WHERE name = $1",
    "UPDATE backends SET removed_at = 1 WHERE name = $1",
    "UPDATE backends SET frozen_reason = 'wrong disk' WHERE name = $1",
];

/// If one of the backends changed its state since the move was planned, nothing is released.
pub async fn move_needs_both_backends_in_the_same_state(fixture: &Fixture) {
    let (content, source) = single(fixture).await;
    let east = fixture.stage_replica(content, "east").await.expect("staged");
    let names = || async {
        let backends = fixture.catalog.movable_backends().await.expect("a query");
        backends.into_iter().filter(|(_, is_movable)| *is_movable).count()
    };
    assert_eq!(names().await, 3);
    for name in ["disk", "east"] {
        for change in CHANGES {
            fixture.change(change, crate::params![name]).await;
            refused(fixture.commit_replica(&east, &source, rebalanced(&source)).await, Verdict::NotNeeded);
            assert_eq!(names().await, 2, "{name}: {change}");
            let undo = "UPDATE backends SET draining = 0, unhealthy_since = NULL, removing_since = NULL, \
                 removed_at = NULL, frozen_reason = NULL";
            fixture.change(undo, vec![]).await;
        }
        let found = "null".to_owned();
        let reason = Some("another cluster".to_owned());
        let record =
            IdentityRecord { host: "a".into(), found, hash: "h".into(), reason, dismissed: false, age: Duration::ZERO };
        fixture.catalog.record(&backend(name), &record, LEASE).await.expect("recorded");
        refused(fixture.commit_replica(&east, &source, rebalanced(&source)).await, Verdict::NotNeeded);
        assert_eq!(names().await, 2, "{name} is disputed");
        fixture.change("DELETE FROM identity_records", vec![]).await;
    }
    fixture.commit_replica(&east, &source, rebalanced(&source)).await.expect("moved");
}

/// A copy that was moved away and back is another copy.
pub async fn move_of_a_copy_that_was_moved_is_refused(fixture: &Fixture) {
    let (content, source) = single(fixture).await;
    let east = fixture.stage_replica(content, "east").await.expect("staged");
    let mut from = source.clone();
    for name in ["west", "disk"] {
        let staged = fixture.stage_replica(content, name).await.expect("staged");
        fixture.commit_replica(&staged, &from, rebalanced(&from)).await.expect("moved");
        from = staged.target;
    }
    refused(fixture.commit_replica(&east, &source, rebalanced(&source)).await, Verdict::NotNeeded);
    assert_eq!(fixture.places_of(content).await, ["disk"]);
    fixture.catalog.drop_write(east.write, Late::No).await.expect("dropped");
}

/// If the reason of a move no longer holds, the new copy is added only if one is missing.
pub async fn refused_move_is_judged_as_a_plain_copy(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.put_copies(bucket, &["disk"], 2).await;
    let source = fixture.copy_on(content, "disk").await;
    let east = fixture.stage_replica(content, "east").await.expect("staged");
    fixture.change("UPDATE backends SET frozen_reason = 'wrong disk' WHERE name = 'east'", vec![]).await;
    refused(fixture.commit_replica(&east, &source, rebalanced(&source)).await, Verdict::NotNeeded);
    fixture.commit_replica(&east, &source, ReplicaSource::Nothing).await.expect("a copy was missing");
    assert_eq!((fixture.places_of(content).await.len(), fixture.copy_work(false).await.len()), (2, 0));
}
