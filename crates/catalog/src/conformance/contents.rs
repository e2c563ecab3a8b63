//! Tests of what cleanup does with condemned content and closed uploads.

use std::time::Duration;

use s3o_model::ids::{BucketId, ContentId};

use super::fixture::{ContentStanding, Fixture};
use crate::{PartSource, params};

const GRACE: Duration = Duration::from_mins(10);

/// Creates the object `a` with this many parts that all refer to one content; returns the joined and the referenced
/// content.
async fn joined_of(fixture: &Fixture, bucket: BucketId, parts: u32) -> (ContentId, ContentId) {
    let source = fixture.put(bucket, "source", 5).await;
    let upload = fixture.upload(bucket, "a").await;
    let listed = fixture.parts_of(upload, parts, (source, 5)).await;
    (fixture.complete(upload, &listed).await.expect("completed"), source)
}

/// Readers that resolved the object before its deletion have that time to finish.
pub async fn joined_content_is_released_after_its_grace_period(fixture: &Fixture) {
    let bucket = fixture.bucket("grace").await;
    let (joined, source) = joined_of(fixture, bucket, 2).await;
    assert!(!fixture.catalog.expand_joined(Duration::ZERO).await.expect("a step"), "it is live");
    assert!(fixture.delete(bucket, "a").await);
    fixture.wait_almost(GRACE);
    assert!(!fixture.catalog.expand_joined(GRACE).await.expect("a step"));
    assert_eq!(fixture.catalog.pieces(joined, 0, 9, 9).await.expect("pieces").len(), 2);
    fixture.clock.advance(Duration::from_millis(1));
    assert!(fixture.catalog.expand_joined(GRACE).await.expect("a step"));
    assert_eq!(
        (fixture.standing(joined).await, fixture.standing(source).await),
        (ContentStanding::Deleted, ContentStanding::Live(1))
    );
    assert!(!fixture.catalog.expand_joined(GRACE).await.expect("a step"));
}

/// One step releases 1000 pieces. The step that releases the last piece deletes the row.
pub async fn joined_content_is_released_in_bounded_steps(fixture: &Fixture) {
    let bucket = fixture.bucket("steps").await;
    let (joined, source) = joined_of(fixture, bucket, 2_500).await;
    assert!(fixture.delete(bucket, "a").await && fixture.delete(bucket, "source").await);
    for left in [1_500, 500] {
        assert!(fixture.catalog.expand_joined(Duration::ZERO).await.expect("a step"));
        assert_eq!(fixture.standing(source).await, ContentStanding::Live(left));
        assert_eq!(fixture.standing(joined).await, ContentStanding::Condemned);
        super::quota_usage::check(fixture).await;
    }
    assert!(fixture.catalog.expand_joined(Duration::ZERO).await.expect("a step"));
    assert_eq!((fixture.standing(joined).await, fixture.usage().await), (ContentStanding::Deleted, (0, 5, 0)));
    assert!(!fixture.catalog.expand_joined(Duration::ZERO).await.expect("a step"));
}

/// Content stays live while another object refers to it.
pub async fn pieces_of_other_objects_are_kept(fixture: &Fixture) {
    let bucket = fixture.bucket("shared").await;
    let (joined, source) = joined_of(fixture, bucket, 3).await;
    fixture.copy((joined, 15), bucket, "b").await.expect("copied");
    assert!(fixture.delete(bucket, "a").await);
    assert!(!fixture.catalog.expand_joined(Duration::ZERO).await.expect("a step"), "a copy refers to it");
    assert!(fixture.delete(bucket, "b").await);
    while fixture.catalog.expand_joined(Duration::ZERO).await.expect("a step") {}
    assert_eq!((fixture.standing(source).await, fixture.queued().await), (ContentStanding::Live(1), vec![]));
}

/// A count that drifted too low does not condemn content that a piece or a part refers to.
pub async fn low_count_deletes_no_referenced_pieces(fixture: &Fixture) {
    let bucket = fixture.bucket("drift").await;
    let (_, source) = joined_of(fixture, bucket, 3).await;
    fixture.change("UPDATE contents SET ref_count = 1 WHERE id = $1", params![source]).await;
    assert!(fixture.delete(bucket, "source").await);
    assert_eq!(fixture.standing(source).await, ContentStanding::Live(0), "pieces refer to it");
    fixture.change("UPDATE contents SET ref_count = 3 WHERE id = $1", params![source]).await;
    let upload = fixture.upload(bucket, "b").await;
    let part = fixture.part_of(upload, 1, (source, 5), PartSource::Range { offset: 0 });
    fixture.store_part(part).await.expect("committed");
    fixture.change("UPDATE contents SET ref_count = 3 WHERE id = $1", params![source]).await;
    assert!(fixture.delete(bucket, "a").await);
    assert!(fixture.catalog.expand_joined(Duration::ZERO).await.expect("a step"));
    assert_eq!(fixture.standing(source).await, ContentStanding::Live(0), "a part refers to it");
    fixture.change("UPDATE contents SET ref_count = 1 WHERE id = $1", params![source]).await;
}

/// An open upload releases nothing.
pub async fn closed_uploads_release_parts_in_bounded_steps(fixture: &Fixture) {
    let bucket = fixture.bucket("closed").await;
    let source = fixture.put(bucket, "source", 5).await;
    let (open, closed) = (fixture.upload(bucket, "open").await, fixture.upload(bucket, "closed").await);
    fixture.parts_of(closed, 1_001, (source, 5)).await;
    fixture.part(open, 1, 3).await;
    assert!(!fixture.catalog.expand_closed_upload().await.expect("a step"), "both are open");
    fixture.catalog.abort_upload(closed).await.expect("aborted");
    assert_eq!(fixture.catalog.forget_closed_uploads(Duration::ZERO).await.expect("a step"), 0, "it holds parts");
    for (left, more) in [(2, true), (1, true), (1, false)] {
        assert_eq!(fixture.catalog.expand_closed_upload().await.expect("a step"), more);
        assert_eq!(fixture.standing(source).await, ContentStanding::Live(left));
    }
    assert_eq!(fixture.catalog.parts(open, 0, 9).await.expect("parts").len(), 1);
    assert_eq!(fixture.catalog.forget_closed_uploads(Duration::from_hours(24)).await.expect("a step"), 1);
}

/// An aborted upload is deleted at once, an open one never.
pub async fn completed_uploads_are_kept_for_their_retention(fixture: &Fixture) {
    let bucket = fixture.bucket("answers").await;
    let keep = Duration::from_hours(24);
    let (open, aborted, completed) =
        (fixture.upload(bucket, "a").await, fixture.upload(bucket, "b").await, fixture.upload(bucket, "c").await);
    fixture.catalog.abort_upload(aborted).await.expect("aborted");
    let parts = [fixture.part(completed, 1, 1).await];
    fixture.complete(completed, &parts).await.expect("completed");
    assert_eq!(fixture.catalog.forget_closed_uploads(keep).await.expect("a step"), 1);
    assert_eq!(fixture.catalog.upload(aborted).await.expect("a query"), None);
    fixture.wait_almost(keep);
    assert_eq!(fixture.catalog.forget_closed_uploads(keep).await.expect("a step"), 0);
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.catalog.forget_closed_uploads(keep).await.expect("a step"), 1);
    assert_eq!(fixture.catalog.upload(completed).await.expect("a query"), None);
    assert!(fixture.catalog.upload(open).await.expect("a query").is_some());
}

/// `forget_condemned` deletes only condemned whole content. Its bytes stay queued.
pub async fn condemned_content_is_kept_for_its_retention(fixture: &Fixture) {
    let bucket = fixture.bucket("condemned").await;
    let keep = Duration::from_hours(1);
    let content = fixture.put(bucket, "b", 5).await;
    let (joined, source) = joined_of(fixture, bucket, 2).await;
    assert!(fixture.delete(bucket, "b").await && fixture.delete(bucket, "a").await);
    fixture.wait_almost(keep);
    assert_eq!(fixture.catalog.forget_condemned(keep).await.expect("a step"), 0);
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.catalog.forget_condemned(keep).await.expect("a step"), 1);
    assert_eq!(
        (fixture.standing(content).await, fixture.queued().await.len()),
        (ContentStanding::Deleted, 1),
        "its bytes are still queued"
    );
    assert_eq!(
        (fixture.standing(joined).await, fixture.standing(source).await),
        (ContentStanding::Condemned, ContentStanding::Live(3))
    );
}
