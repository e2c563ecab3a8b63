//! Facts about moments that a clock wrote which was ahead.

use std::time::Duration;

use super::scene::{LEASE, Scene};
use crate::{Ahead, Intents, Late, Longest, PartSource, Uploads};

const DAY: Duration = Duration::from_hours(24);

const LONGEST: Longest = Longest {
    due: DAY,
    claim: Duration::from_mins(5),
    lease: LEASE,
    deletion: Duration::from_hours(2),
    absence: Duration::from_hours(1),
    past: Duration::from_mins(5),
    record: Duration::from_mins(2),
};

/// A write that was given up and may still land: its cleanup waits.
async fn awaited(scene: &Scene) {
    let bucket = scene.bucket("ahead").await;
    let intent = scene.staged(bucket, "late", 5).await;
    scene.catalog.drop_write(intent.write, Late::Within(LONGEST.absence)).await.expect("given up");
}

/// What lies as far ahead as a setting puts it stays as it is.
pub async fn a_moment_within_its_setting_stays(scene: &Scene) {
    awaited(scene).await;
    scene.change("UPDATE cleanup_queue SET due = :now + 86400000", vec![]).await;
    let bucket = scene.bucket("writing").await;
    scene.staged(bucket, "a", 5).await;
    assert_eq!(scene.catalog.future(&LONGEST).await.expect("a look"), Vec::<String>::new());
    assert_eq!(scene.catalog.end_future(&LONGEST).await.expect("a look"), 0);
}

/// A cleanup that is due too far ahead is due now, and so is one whose claim lies ahead.
pub async fn a_cleanup_due_too_far_ahead_is_due_now(scene: &Scene) {
    awaited(scene).await;
    scene.change("UPDATE cleanup_queue SET due = :now + 86400001, absent_ok_after = NULL", vec![]).await;
    assert_eq!(scene.claim(9).await.1, []);
    let [shown] = &scene.catalog.future(&LONGEST).await.expect("a look")[..] else { panic!("one row lies ahead") };
    assert!(shown.starts_with("cleanup ") && shown.ends_with(" is due in 86400 s"), "{shown}");
    assert_eq!(scene.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    assert_eq!(scene.claim(9).await.1.len(), 1);
    scene.change("UPDATE cleanup_queue SET claimed_at = :now + 300001", vec![]).await;
    assert_eq!(scene.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(scene.claim(9).await.1.len(), 1, "the claim was freed");
}

/// A lease that lies too far ahead has ended.
pub async fn a_lease_too_far_ahead_has_ended(scene: &Scene) {
    let bucket = scene.bucket("leased").await;
    scene.staged(bucket, "a", 5).await;
    scene.change("UPDATE pending_objects SET lease_until = lease_until + 315360000000", vec![]).await;
    assert_eq!(scene.reap(9, Duration::ZERO).await.len(), 0);
    assert_eq!(scene.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(scene.reap(9, Duration::ZERO).await.len(), 1);
}

/// A write that may still land is waited for as long as the setting says, however far ahead the moment lay.
pub async fn an_absence_is_never_believed_at_once(scene: &Scene) {
    awaited(scene).await;
    scene.change("UPDATE cleanup_queue SET absent_ok_after = absent_ok_after + 315360000000", vec![]).await;
    assert_eq!(scene.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    let left = scene.number("SELECT absent_ok_after - :now FROM cleanup_queue").await;
    assert_eq!(left, 3_600_000, "cut to the longest, never to now");
}

/// A deletion that was begun in the future is begun again.
pub async fn a_deletion_begun_ahead_is_begun_again(scene: &Scene) {
    let bucket = scene.bucket("stuck").await;
    scene.mortal(bucket, "a", 5, Duration::from_secs(1)).await;
    scene.clock.advance(Duration::from_secs(2));
    assert_eq!(scene.claim_expiries(9).await.1, 1);
    scene.change("UPDATE objects SET deletion_initiated_at = :now + 7200001", vec![]).await;
    assert_eq!(scene.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    assert_eq!(scene.number("SELECT count(*) FROM objects WHERE deletion_status = 'NOT_EXPIRED'").await, 1);
}

/// Content that was condemned and uploads that were used in the future are as old as now.
pub async fn what_began_ahead_began_now(scene: &Scene) {
    let bucket = scene.bucket("begun").await;
    let upload = scene.upload(bucket, "open").await;
    let content = scene.put(bucket, "a", 5).await;
    let part = scene.part_of(upload, 1, (content, 5), PartSource::Range { offset: 0 });
    scene.catalog.commit_part(part).await.expect("committed");
    let joined = scene.upload(bucket, "joined").await;
    let part = scene.part_of(joined, 1, (content, 5), PartSource::Range { offset: 0 });
    scene.catalog.commit_part(part).await.expect("committed");
    scene.complete(joined, &[(1, content)]).await.expect("completed");
    assert!(scene.delete(bucket, "joined").await);
    scene.change("UPDATE contents SET condemned_at = :now + 300001 WHERE state = 'condemned'", vec![]).await;
    scene.change("UPDATE multipart_uploads SET created_at = :now + 300001", vec![]).await;
    scene.change("UPDATE multipart_parts SET last_modified = :now + 300001", vec![]).await;
    assert_eq!(scene.catalog.future(&LONGEST).await.expect("a look").len(), 2);
    assert!(scene.catalog.end_future(&LONGEST).await.expect("changed") >= 3);
    assert_eq!(scene.catalog.future(&LONGEST).await.expect("a look"), Vec::<String>::new());
    let late = "SELECT count(*) FROM multipart_parts WHERE last_modified > :now";
    assert_eq!(scene.number(late).await, 0);
}
