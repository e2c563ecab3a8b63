//! Tests of timestamps ahead of the clock: another clock wrote them, or the clock was set back.

use std::time::Duration;

use super::fixture::{Fixture, LEASE};
use crate::{Late, Longest, PartSource, TrashEnd};

const HOUR: Duration = Duration::from_hours(1);
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

/// Abandons a write whose bytes may still arrive, so that its cleanup has an `absent_ok_after`.
async fn abandon_write_that_may_arrive_late(fixture: &Fixture) {
    let bucket = fixture.bucket("ahead").await;
    let intent = fixture.staged(bucket, "late", 5).await;
    fixture.catalog.drop_write(intent.write, Late::Within(LONGEST.absence)).await.expect("dropped");
}

/// A timestamp exactly as far ahead of the clock as its setting allows is neither reported nor changed.
pub async fn timestamps_within_their_setting_are_kept(fixture: &Fixture) {
    abandon_write_that_may_arrive_late(fixture).await;
    fixture.change("UPDATE cleanup_queue SET due = :now + 86400000", vec![]).await;
    let bucket = fixture.bucket("writing").await;
    fixture.staged(bucket, "a", 5).await;
    assert_eq!(fixture.catalog.future(&LONGEST).await.expect("a query"), Vec::<String>::new());
    assert_eq!(fixture.catalog.end_future(&LONGEST).await.expect("a query"), 0);
}

/// `end_future` moves `due` to now, and frees a claim whose time is ahead of the clock.
pub async fn cleanups_due_or_claimed_too_far_ahead_are_claimable(fixture: &Fixture) {
    abandon_write_that_may_arrive_late(fixture).await;
    fixture.change("UPDATE cleanup_queue SET due = :now + 86400001, absent_ok_after = NULL", vec![]).await;
    assert_eq!(fixture.claim(9).await.1, []);
    let [shown] = &fixture.catalog.future(&LONGEST).await.expect("a query")[..] else {
        panic!("one row is too far ahead")
    };
    assert!(shown.starts_with("cleanup ") && shown.ends_with(" is due in 86400 s"), "{shown}");
    assert_eq!(fixture.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    assert_eq!(fixture.claim(9).await.1.len(), 1);
    fixture.change("UPDATE cleanup_queue SET claimed_at = :now + 300001", vec![]).await;
    assert_eq!(fixture.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.claim(9).await.1.len(), 1, "the claim was freed");
}

/// After `end_future` the reaper claims the intent.
pub async fn lease_too_far_ahead_is_ended(fixture: &Fixture) {
    let bucket = fixture.bucket("leased").await;
    fixture.staged(bucket, "a", 5).await;
    fixture.change("UPDATE pending_objects SET lease_until = lease_until + 315360000000", vec![]).await;
    assert_eq!(fixture.reap(9, Duration::ZERO).await.len(), 0);
    assert_eq!(fixture.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.reap(9, Duration::ZERO).await.len(), 1);
}

/// While bytes may still arrive their absence proves nothing: `absent_ok_after` is never cut to now.
pub async fn absent_ok_after_is_cut_to_its_setting(fixture: &Fixture) {
    abandon_write_that_may_arrive_late(fixture).await;
    fixture.change("UPDATE cleanup_queue SET absent_ok_after = absent_ok_after + 315360000000", vec![]).await;
    assert_eq!(fixture.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    let left = fixture.number("SELECT absent_ok_after - :now FROM cleanup_queue").await;
    assert_eq!(left, 3_600_000, "cut to the longest, never to now");
}

/// The object is `NOT_EXPIRED` again.
pub async fn deletion_started_in_the_future_is_reset(fixture: &Fixture) {
    let bucket = fixture.bucket("stuck").await;
    fixture.put_expiring(bucket, "a", 5, Duration::from_secs(1)).await;
    fixture.clock.advance(Duration::from_secs(2));
    assert_eq!(fixture.claim_expiries(9).await.1, 1);
    fixture.change("UPDATE objects SET deletion_initiated_at = :now + 7200001", vec![]).await;
    assert_eq!(fixture.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    assert_eq!(fixture.number("SELECT count(*) FROM objects WHERE deletion_status = 'NOT_EXPIRED'").await, 1);
}

/// This covers `condemned_at` of contents and `created_at` and `last_modified` of uploads and parts.
pub async fn future_start_times_are_set_to_now(fixture: &Fixture) {
    let bucket = fixture.bucket("begun").await;
    let upload = fixture.upload(bucket, "open").await;
    let content = fixture.put(bucket, "a", 5).await;
    let part = fixture.part_of(upload, 1, (content, 5), PartSource::Range { offset: 0 });
    fixture.store_part(part).await.expect("committed");
    let joined = fixture.upload(bucket, "joined").await;
    let part = fixture.part_of(joined, 1, (content, 5), PartSource::Range { offset: 0 });
    fixture.store_part(part).await.expect("committed");
    fixture.complete(joined, &[(1, content)]).await.expect("completed");
    assert!(fixture.delete(bucket, "joined").await);
    fixture.change("UPDATE contents SET condemned_at = :now + 300001 WHERE state = 'condemned'", vec![]).await;
    fixture.change("UPDATE multipart_uploads SET created_at = :now + 300001", vec![]).await;
    fixture.change("UPDATE multipart_parts SET last_modified = :now + 300001", vec![]).await;
    assert_eq!(fixture.catalog.future(&LONGEST).await.expect("a query").len(), 2);
    assert!(fixture.catalog.end_future(&LONGEST).await.expect("changed") >= 3);
    assert_eq!(fixture.catalog.future(&LONGEST).await.expect("a query"), Vec::<String>::new());
    let late = "SELECT count(*) FROM multipart_parts WHERE last_modified > :now";
    assert_eq!(fixture.number(late).await, 0);
}

/// It counts as deleted now: it is neither purged at once nor kept for as long as the clock was ahead.
pub async fn trash_deleted_in_the_future_keeps_its_retention(fixture: &Fixture) {
    let bucket = fixture.bucket("trash").await;
    fixture.put(bucket, "a", 5).await;
    fixture.rm(bucket, "", HOUR).await;
    let year = "UPDATE trash_objects SET deleted_at = deleted_at + 31536000000, purge_at = purge_at + 31536000000";
    fixture.change(year, vec![]).await;
    assert_eq!(fixture.catalog.future(&LONGEST).await.expect("a query").len(), 1);
    assert_eq!(fixture.catalog.end_future(&LONGEST).await.expect("changed"), 1);
    fixture.wait_almost(HOUR);
    assert_eq!(fixture.end_trash(TrashEnd::Retention(HOUR)).await, Vec::<String>::new());
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.end_trash(TrashEnd::Retention(HOUR)).await, ["a"]);
}
