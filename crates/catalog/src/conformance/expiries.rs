//! Facts about the removal of objects whose time has passed.

use std::time::Duration;

use s3o_model::ids::BucketId;

use super::races::both;
use super::scene::{Scene, Standing, at_once};
use crate::{Expiries, Overview, StuckObjects, params};

const MINUTE: Duration = Duration::from_mins(1);
const STUCK: Duration = Duration::from_hours(2);

/// Objects of these names that have expired.
async fn expired(scene: &Scene, names: &[&str]) -> BucketId {
    let bucket = scene.bucket("mortal").await;
    for name in names {
        scene.mortal(bucket, name, 1, MINUTE).await;
    }
    scene.clock.advance(MINUTE);
    bucket
}

/// A claim takes what has expired, in bounded batches and once; then the rows go with their bytes.
pub async fn what_expired_is_claimed_once_and_goes(scene: &Scene) {
    let bucket = expired(scene, &["a", "b", "c"]).await;
    scene.put(bucket, "immortal", 1).await;
    scene.mortal(bucket, "alive", 1, MINUTE).await;
    let ((first, two), (second, one)) = (scene.claim_expiries(2).await, scene.claim_expiries(2).await);
    assert_eq!((two, one, scene.claim_expiries(2).await.1), (2, 1, 0));
    assert_eq!(scene.remove_claimed(first).await, ["a", "b"]);
    let gone = scene.catalog.remove_claimed(second).await.expect("removed");
    assert_eq!((gone[0].bucket.as_str(), gone[0].key.as_str(), gone[0].size_bytes), ("mortal", "c", 1));
    assert_eq!((scene.number("SELECT count(*) FROM objects").await, scene.queued().await.len()), (2, 3));
    assert_eq!(scene.booked().await, (2, 3, 0));
}

/// Two objects, one content: one expires, the bytes stay; the other expires, they go.
pub async fn shared_bytes_go_with_the_last(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    let shared = scene.mortal(bucket, "a", 5, MINUTE).await;
    scene.mortal_copy((shared, 5), bucket, "b", 2 * MINUTE).await;
    for (key, standing) in [("a", Standing::Live(1)), ("b", Standing::Condemned)] {
        scene.clock.advance(MINUTE);
        let (token, _) = scene.claim_expiries(9).await;
        assert_eq!(scene.remove_claimed(token).await, [key]);
        assert_eq!(scene.standing(shared).await, standing);
    }
    assert_eq!(scene.booked().await, (0, 5, 0));
}

/// Many objects with one content go in one unit, and it is counted down by as many.
pub async fn a_batch_counts_what_it_shares(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    let shared = scene.mortal(bucket, "a", 5, MINUTE).await;
    for key in ["b", "c", "d"] {
        scene.mortal_copy((shared, 5), bucket, key, MINUTE).await;
    }
    scene.copy((shared, 5), bucket, "stays").await.expect("copied");
    scene.clock.advance(MINUTE);
    let (token, _) = scene.claim_expiries(9).await;
    assert_eq!(scene.remove_claimed(token).await.len(), 4);
    assert_eq!(scene.standing(shared).await, Standing::Live(1));
}

/// What was written anew between claim and removal survives, however it was written.
pub async fn what_was_written_anew_survives(scene: &Scene) {
    let bucket = expired(scene, &["copied", "gone", "put"]).await;
    let (token, _) = scene.claim_expiries(9).await;
    let fresh = scene.put(bucket, "put", 7).await;
    scene.copy((fresh, 7), bucket, "copied").await.expect("copied");
    assert_eq!(scene.remove_claimed(token).await, ["gone"]);
    assert_eq!(scene.standing(fresh).await, Standing::Live(2));
    assert!(scene.resolve("mortal", "copied").await.object.is_some());
}

/// A claim that was taken away removes nothing; whoever claims anew does.
pub async fn a_lost_claim_removes_nothing(scene: &Scene) {
    expired(scene, &["a"]).await;
    let (slow, _) = scene.claim_expiries(9).await;
    scene.clock.advance(STUCK);
    assert_eq!(scene.catalog.reset_stuck(STUCK, 9).await.expect("reset").len(), 1);
    assert_eq!(scene.remove_claimed(slow).await, Vec::<String>::new());
    assert_eq!(scene.resolve("mortal", "a").await.object, None, "never readable in between");
    let (next, count) = scene.claim_expiries(9).await;
    assert_eq!((count, scene.remove_claimed(slow).await.len()), (1, 0));
    assert_eq!(scene.remove_claimed(next).await, ["a"]);
    assert_eq!(scene.remove_claimed(next).await, Vec::<String>::new());
}

/// A later change flags the writes of these keys that are under way.
pub async fn an_expiry_supersedes_writes_under_way(scene: &Scene) {
    let bucket = expired(scene, &["a"]).await;
    scene.staged(bucket, "a", 1).await;
    scene.staged(bucket, "b", 1).await;
    let (token, _) = scene.claim_expiries(9).await;
    scene.remove_claimed(token).await;
    let flagged = scene.rows("SELECT key FROM pending_objects WHERE superseded = $1", params![1]).await;
    assert_eq!(flagged.iter().map(|row| row.text(0).expect("a key")).collect::<Vec<_>>(), ["a"]);
}

/// A row whose count is wrong fails its unit; halved, the rest goes, and a finding tells of the one that stays.
pub async fn one_bad_row_stops_no_other(scene: &Scene) {
    let bucket = expired(scene, &["a", "c", "d"]).await;
    let bad = scene.mortal(bucket, "b", 1, Duration::from_millis(1)).await;
    scene.clock.advance(MINUTE);
    scene.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![bad]).await;
    let mut claims = vec![scene.claim_expiries(9).await.0];
    let mut gone = Vec::new();
    while let Some(token) = claims.pop() {
        let Ok(removed) = scene.catalog.remove_claimed(token).await else {
            let other = scene.token();
            match scene.catalog.halve_claim(token, other).await.expect("halved") {
                0 => scene.catalog.note_unremovable(token, "a count below nothing").await.expect("noted"),
                _ => claims.extend([token, other]),
            }
            continue;
        };
        gone.extend(removed.into_iter().map(|object| object.key));
    }
    gone.sort_unstable();
    assert_eq!(gone, ["a", "c", "d"]);
    let findings = "SELECT physical_key, detail FROM findings WHERE kind = 'not_expired' AND size_bytes = $1";
    let found = scene.rows(findings, params![1]).await;
    let told: Vec<_> = found.iter().map(|row| (row.text(0).expect("a name"), row.text(1).expect("why"))).collect();
    assert_eq!(told, [("mortal/b", "a count below nothing")]);
    assert_eq!(scene.claim_expiries(9).await.1, 0, "it is skipped");
    scene.change("UPDATE contents SET ref_count = 1 WHERE id = $1", params![bad]).await;
    scene.clock.advance(STUCK);
    assert_eq!(scene.catalog.reset_stuck(STUCK, 9).await.expect("reset").len(), 1);
    let (token, _) = scene.claim_expiries(9).await;
    assert_eq!(scene.remove_claimed(token).await, ["b"]);
    assert_eq!(scene.number("SELECT count(*) FROM findings").await, 0);
}

/// How long the oldest has waited is told, claimed or not.
pub async fn what_waits_is_told(scene: &Scene) {
    let waited = || async { scene.catalog.oldest_due(STUCK).await.expect("a look").expiry };
    expired(scene, &["a"]).await;
    assert_eq!(waited().await, Duration::ZERO);
    scene.clock.advance(MINUTE);
    assert_eq!(waited().await, MINUTE);
    let (token, _) = scene.claim_expiries(9).await;
    assert_eq!(waited().await, MINUTE, "who claimed it may be dead");
    scene.remove_claimed(token).await;
    assert_eq!(waited().await, Duration::ZERO);
}

/// Several workers share a backlog: nothing is claimed twice, nothing is left.
pub async fn claims_of_expiries_never_overlap(scene: &Scene) {
    let names: Vec<String> = (0..40).map(|number| format!("k{number:02}")).collect();
    expired(scene, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let worker = |scene: Scene| async move {
        let mut gone = Vec::new();
        loop {
            let (token, count) = scene.claim_expiries(3).await;
            gone.extend(scene.remove_claimed(token).await);
            if count == 0 {
                return gone;
            }
        }
    };
    let mut gone = at_once((0..4).map(|_| worker(scene.clone())).collect()).await.concat();
    // Rows that were locked by another are passed over, so a worker may end before the last ones went.
    gone.extend(worker(scene.clone()).await);
    gone.sort_unstable();
    assert_eq!(gone, names);
}

/// An overwrite that meets the removal comes before it or after it: the new object stays.
pub async fn removal_meets_an_overwrite(scene: &Scene) {
    let bucket = expired(scene, &["a"]).await;
    for round in 0..20 {
        let (token, _) = scene.claim_expiries(9).await;
        let intent = scene.staged(bucket, "a", 2).await;
        let (remover, writer) = (scene.clone(), scene.clone());
        let removal = async move { remover.remove_claimed(token).await };
        let write = async move { writer.commit(&intent, s3o_model::conditions::WriteCondition::None).await };
        let (_, written) = both(removal, write, round).await;
        written.expect("committed");
        assert!(scene.resolve("mortal", "a").await.object.is_some());
        scene.mortal(bucket, "a", 1, Duration::from_millis(1)).await;
        scene.clock.advance(Duration::from_millis(1));
    }
}

/// The last copy meets the removal of the object it was made from: it has the bytes, or finds them gone.
pub async fn removal_meets_a_copy(scene: &Scene) {
    let bucket = scene.bucket("mortal").await;
    for round in 0..20 {
        let content = scene.mortal(bucket, "a", 1, MINUTE).await;
        scene.clock.advance(MINUTE);
        let (token, _) = scene.claim_expiries(9).await;
        let (remover, other) = (scene.clone(), scene.clone());
        let removal = async move { remover.remove_claimed(token).await };
        let copy = async move { other.copy((content, 1), bucket, "copy").await };
        let (gone, copied) = both(removal, copy, round).await;
        assert_eq!(gone, ["a"]);
        let standing = if copied.is_ok() { Standing::Live(1) } else { Standing::Condemned };
        assert_eq!(scene.standing(content).await, standing);
        scene.delete(bucket, "copy").await;
    }
}
