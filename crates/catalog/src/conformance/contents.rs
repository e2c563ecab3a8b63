//! Facts about what cleanup does to contents.

use std::time::Duration;

use s3o_model::ids::{BucketId, ContentId};

use super::scene::{Scene, Standing};
use crate::{Contents, Objects, PartSource, Uploads, params};

const GRACE: Duration = Duration::from_mins(10);

/// An object `a` of this many parts that all refer to one content; both contents are returned.
async fn joined_of(scene: &Scene, bucket: BucketId, parts: u32) -> (ContentId, ContentId) {
    let source = scene.put(bucket, "source", 5).await;
    let upload = scene.upload(bucket, "a").await;
    let listed = scene.parts_of(upload, parts, (source, 5)).await;
    (scene.complete(upload, &listed).await.expect("completed"), source)
}

/// Joined content is not touched before its readers had time to finish.
pub async fn readers_have_time_to_finish(scene: &Scene) {
    let bucket = scene.bucket("grace").await;
    let (joined, source) = joined_of(scene, bucket, 2).await;
    assert!(!scene.catalog.expand_joined(Duration::ZERO).await.expect("a step"), "it is live");
    assert!(scene.delete(bucket, "a").await);
    scene.wait_almost(GRACE);
    assert!(!scene.catalog.expand_joined(GRACE).await.expect("a step"));
    assert_eq!(scene.catalog.pieces(joined, 0, 9, 9).await.expect("pieces").len(), 2);
    scene.clock.advance(Duration::from_millis(1));
    assert!(scene.catalog.expand_joined(GRACE).await.expect("a step"));
    assert_eq!((scene.standing(joined).await, scene.standing(source).await), (Standing::Forgotten, Standing::Live(1)));
    assert!(!scene.catalog.expand_joined(GRACE).await.expect("a step"));
}

/// Each step lets go of a bounded number of pieces, and the row goes with the last.
pub async fn joined_content_goes_in_bounded_steps(scene: &Scene) {
    let bucket = scene.bucket("steps").await;
    let (joined, source) = joined_of(scene, bucket, 2_500).await;
    assert!(scene.delete(bucket, "a").await && scene.delete(bucket, "source").await);
    for left in [1_500, 500] {
        assert!(scene.catalog.expand_joined(Duration::ZERO).await.expect("a step"));
        assert_eq!(scene.standing(source).await, Standing::Live(left));
        assert_eq!(scene.standing(joined).await, Standing::Condemned);
        super::books::check(scene).await;
    }
    assert!(scene.catalog.expand_joined(Duration::ZERO).await.expect("a step"));
    assert_eq!((scene.standing(joined).await, scene.booked().await), (Standing::Forgotten, (0, 5, 0)));
    assert!(!scene.catalog.expand_joined(Duration::ZERO).await.expect("a step"));
}

/// Bytes that another object still shows stay when joined content lets go of them.
pub async fn pieces_that_others_use_stay(scene: &Scene) {
    let bucket = scene.bucket("shared").await;
    let (joined, source) = joined_of(scene, bucket, 3).await;
    scene.copy((joined, 15), bucket, "b").await.expect("copied");
    assert!(scene.delete(bucket, "a").await);
    assert!(!scene.catalog.expand_joined(Duration::ZERO).await.expect("a step"), "a copy shows it");
    assert!(scene.delete(bucket, "b").await);
    while scene.catalog.expand_joined(Duration::ZERO).await.expect("a step") {}
    assert_eq!((scene.standing(source).await, scene.queued().await), (Standing::Live(1), vec![]));
}

/// A count that drifted too low must not kill bytes that a piece or a part still refers to.
pub async fn a_count_that_drifted_kills_no_bytes(scene: &Scene) {
    let bucket = scene.bucket("drift").await;
    let (_, source) = joined_of(scene, bucket, 3).await;
    scene.change("UPDATE contents SET ref_count = 1 WHERE id = $1", params![source]).await;
    assert!(scene.delete(bucket, "source").await);
    assert_eq!(scene.standing(source).await, Standing::Live(0), "pieces refer to it");
    scene.change("UPDATE contents SET ref_count = 3 WHERE id = $1", params![source]).await;
    let upload = scene.upload(bucket, "b").await;
    let part = scene.part_of(upload, 1, (source, 5), PartSource::Range { offset: 0 });
    scene.catalog.commit_part(part).await.expect("committed");
    scene.change("UPDATE contents SET ref_count = 3 WHERE id = $1", params![source]).await;
    assert!(scene.delete(bucket, "a").await);
    assert!(scene.catalog.expand_joined(Duration::ZERO).await.expect("a step"));
    assert_eq!(scene.standing(source).await, Standing::Live(0), "a part refers to it");
    scene.change("UPDATE contents SET ref_count = 1 WHERE id = $1", params![source]).await;
}

/// A closed upload lets go of what it still holds, in bounded steps; an open one of nothing.
pub async fn closed_uploads_let_go_in_bounded_steps(scene: &Scene) {
    let bucket = scene.bucket("closed").await;
    let source = scene.put(bucket, "source", 5).await;
    let (open, closed) = (scene.upload(bucket, "open").await, scene.upload(bucket, "closed").await);
    scene.parts_of(closed, 1_001, (source, 5)).await;
    scene.part(open, 1, 3).await;
    assert!(!scene.catalog.expand_closed_upload().await.expect("a step"), "both are open");
    scene.catalog.abort_upload(closed).await.expect("aborted");
    assert_eq!(scene.catalog.forget_closed_uploads(Duration::ZERO).await.expect("a step"), 0, "it holds parts");
    for (left, more) in [(2, true), (1, true), (1, false)] {
        assert_eq!(scene.catalog.expand_closed_upload().await.expect("a step"), more);
        assert_eq!(scene.standing(source).await, Standing::Live(left));
    }
    assert_eq!(scene.catalog.parts(open, 0, 9).await.expect("parts").len(), 1);
    assert_eq!(scene.catalog.forget_closed_uploads(Duration::from_hours(24)).await.expect("a step"), 1);
}

/// A completed upload is kept for its answer, an aborted one is forgotten at once, an open one never.
pub async fn answers_are_kept_for_their_time(scene: &Scene) {
    let bucket = scene.bucket("answers").await;
    let keep = Duration::from_hours(24);
    let (open, aborted, completed) =
        (scene.upload(bucket, "a").await, scene.upload(bucket, "b").await, scene.upload(bucket, "c").await);
    scene.catalog.abort_upload(aborted).await.expect("aborted");
    let parts = [scene.part(completed, 1, 1).await];
    scene.complete(completed, &parts).await.expect("completed");
    assert_eq!(scene.catalog.forget_closed_uploads(keep).await.expect("a step"), 1);
    assert_eq!(scene.catalog.upload(aborted).await.expect("a look"), None);
    scene.wait_almost(keep);
    assert_eq!(scene.catalog.forget_closed_uploads(keep).await.expect("a step"), 0);
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(scene.catalog.forget_closed_uploads(keep).await.expect("a step"), 1);
    assert_eq!(scene.catalog.upload(completed).await.expect("a look"), None);
    assert!(scene.catalog.upload(open).await.expect("a look").is_some());
}

/// Condemned whole content is kept for its time; live and joined content is not this step's.
pub async fn condemned_content_is_kept_for_its_time(scene: &Scene) {
    let bucket = scene.bucket("condemned").await;
    let keep = Duration::from_hours(1);
    let content = scene.put(bucket, "b", 5).await;
    let (joined, source) = joined_of(scene, bucket, 2).await;
    assert!(scene.delete(bucket, "b").await && scene.delete(bucket, "a").await);
    scene.wait_almost(keep);
    assert_eq!(scene.catalog.forget_condemned(keep).await.expect("a step"), 0);
    scene.clock.advance(Duration::from_millis(1));
    assert_eq!(scene.catalog.forget_condemned(keep).await.expect("a step"), 1);
    assert_eq!(
        (scene.standing(content).await, scene.queued().await.len()),
        (Standing::Forgotten, 1),
        "its bytes still wait"
    );
    assert_eq!((scene.standing(joined).await, scene.standing(source).await), (Standing::Condemned, Standing::Live(3)));
}
