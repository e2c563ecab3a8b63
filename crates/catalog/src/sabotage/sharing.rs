//! What keeps a good copy from being thrown away for a bad one, and shared content from being shared wrongly.

use std::time::Duration;

use s3o_model::content::Location;
use s3o_model::intent::Intent;

use super::Cut::{Guard, Words};
use super::{Told, broken, safeties, told};
use crate::conformance::scene::sharing::BODY_BYTES;
use crate::conformance::scene::{LEASE, Scene, announced, backend};
use crate::{CommitPut, Copies, Intents, Late, Objects};

const THROWN_AWAY: &str = "a good new copy was thrown away for a bad old one";
const GOOD_GONE: &str = "a good old copy was thrown away";
const UNWANTED: &str = "a copy that nobody wants is kept";
const REFUSED: &str = "a write of known content failed";
const KEPT_TWICE: &str = "equal content is kept twice";
const CALLED_BAD: &str = "a good copy is called bad for one that was there before";
const NO_GOOD: &str = "a write was acknowledged with bytes that are not known to be good";

safeties! { [sqlite]
    a_bad_copy_counts_for_nothing by a_write_joins_bad_content: "commit_put",
        [Words("AND h.state = 'present'", "")], [THROWN_AWAY];
    copies_are_kept_where_they_are_wanted by a_write_joins_good_content: "commit_put",
        [Words("(SELECT count(*) FROM object_locations h WHERE h.content_id = $1 AND h.state = 'present') < $2",
            "$2 > 0")], [UNWANTED];
    only_bad_copies_make_way by a_write_brings_two_copies: "commit_put",
        [Words(" AND state <> 'present'", "")], [GOOD_GONE];
    a_backend_has_one_copy by a_write_brings_two_copies: "commit_put",
        [Words(" AND backend_name NOT IN (SELECT backend_name FROM object_locations WHERE content_id = $1)", "")],
        [REFUSED];
    a_look_sees_live_content_only by content_comes_again: "read",
        [Words(" AND c.state = 'live'", "")], [KEPT_TWICE];
    a_suspicion_names_the_copy_that_was_read by a_slow_reader_tells_of_a_copy_that_went: "suspect",
        [Words("AND physical_key = $3", "AND $3 <> ''")], [CALLED_BAD];
    a_pinned_write_commits_only_what_it_holds by a_reaped_pin_is_committed: "commit_put",
        [Guard("AND pin_content_id = $2 AND state = 'open'")], [broken::COUNT];
    a_pinned_write_has_good_bytes by a_pinned_copy_goes_bad: "commit_put",
        [Guard("AND state = 'present' LIMIT 1")], [NO_GOOD];
    a_pin_is_a_reference by content_is_pinned: "pin",
        [Words("ref_count = ref_count + 1", "ref_count = ref_count + 0")], [broken::COUNT];
    whoever_gives_the_last_pin_up_condemns by the_last_pin_is_given_up: "drop_write",
        [Words(" AND NOT (q.write_id = $1 AND q.state = 'open')", "")], [broken::UNREFERRED];
    whoever_reaps_the_last_pin_condemns by the_last_pin_is_reaped: "abandon",
        [Words(" AND NOT (q.token IS NOT NULL AND q.token = $1 AND q.write_id = $2)", "")], [broken::UNREFERRED];
    a_pin_given_up_is_counted by a_pin_is_given_up: "drop_write",
        [Words("ref_count = ref_count - s.n", "ref_count = ref_count - s.n + s.n")], [broken::COUNT];
}

async fn a_write_joins_bad_content(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let content = scene.share(bucket, "a", 1).await;
    scene.call(content, "suspect").await;
    scene.share(bucket, "b", 1).await;
    told(scene.places(content).await.iter().all(|(_, state)| state != "present"), THROWN_AWAY)
}

async fn a_write_joins_good_content(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let content = scene.share(bucket, "a", 1).await;
    scene.share_on("cloud", bucket, "b", 1).await;
    told(scene.places(content).await.len() > 1, UNWANTED)
}

/// By the time a reader tells what it found, the copy that it read was replaced.
async fn a_slow_reader_tells_of_a_copy_that_went(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let content = scene.share(bucket, "a", 1).await;
    let physical_key = scene.places(content).await.remove(0).0;
    scene.call(content, "suspect").await;
    scene.share(bucket, "b", 1).await;
    let read = Location { backend: backend("disk"), physical_key };
    scene.catalog.suspect(content, &read).await.expect("told");
    told(scene.places(content).await.iter().all(|(_, state)| state != "present"), CALLED_BAD)
}

/// A write of two copies meets content that has one.
async fn a_write_brings_two_copies(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let content = scene.share(bucket, "a", 1).await;
    let old = scene.places(content).await.remove(0);
    scene.attach("cloud", None).await;
    let disk = scene.staged(bucket, "b", BODY_BYTES).await;
    let elsewhere = scene.intent(bucket, "b", BODY_BYTES);
    let cloud = Intent { backend: backend("cloud"), write: disk.write, ..elsewhere };
    scene.try_stage(&cloud).await.expect("staged");
    let put = CommitPut { landed: announced(disk.write, 2), ..scene.shared_put_of(&disk, 1) };
    if scene.catalog.commit_put(put).await.is_err() {
        return told(true, REFUSED);
    }
    told(!scene.places(content).await.contains(&old), GOOD_GONE)
}

/// Its first content is condemned, not forgotten.
async fn content_comes_again(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.share(bucket, "a", 1).await;
    assert!(scene.delete(bucket, "a").await);
    let (one, other) = (scene.share(bucket, "b", 1).await, scene.share(bucket, "c", 1).await);
    told(one != other, KEPT_TWICE)
}

async fn a_reaped_pin_is_committed(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let content = scene.share(bucket, "a", 1).await;
    let (pin, _) = scene.pinned(bucket, "b", 1).await;
    scene.clock.advance(LEASE);
    assert_eq!(scene.reap(9, Duration::ZERO).await.len(), 1);
    scene.commit_pinned(&pin, content).await.map(drop).unwrap_or_default();
    Told::new()
}

async fn a_pinned_copy_goes_bad(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    let content = scene.share(bucket, "a", 1).await;
    let (pin, _) = scene.pinned(bucket, "b", 1).await;
    scene.call(content, "suspect").await;
    told(scene.commit_pinned(&pin, content).await.is_ok(), NO_GOOD)
}

async fn content_is_pinned(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.share(bucket, "a", 1).await;
    scene.pinned(bucket, "b", 1).await;
    Told::new()
}

async fn the_last_pin_is_given_up(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.share(bucket, "a", 1).await;
    let (pin, _) = scene.pinned(bucket, "b", 1).await;
    assert!(scene.delete(bucket, "a").await);
    assert!(scene.catalog.drop_write(pin.write, Late::No).await.expect("given up").was_open);
    Told::new()
}

async fn the_last_pin_is_reaped(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.share(bucket, "a", 1).await;
    scene.pinned(bucket, "b", 1).await;
    assert!(scene.delete(bucket, "a").await);
    scene.clock.advance(LEASE);
    assert_eq!(scene.reap(9, Duration::ZERO).await.len(), 1);
    Told::new()
}

async fn a_pin_is_given_up(scene: &Scene) -> Told {
    let bucket = scene.bucket("house").await;
    scene.share(bucket, "a", 1).await;
    let (pin, _) = scene.pinned(bucket, "b", 1).await;
    assert!(scene.catalog.drop_write(pin.write, Late::No).await.expect("given up").was_open);
    Told::new()
}
