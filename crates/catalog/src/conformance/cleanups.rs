//! Facts about cleanups.

use std::collections::BTreeSet;
use std::time::Duration;

use s3o_model::cleanup::{Cleanup, Outcome};
use s3o_model::clock::Clock as _;

use super::scene::{AGE, Scene, at_once, backend};
use crate::{Cleanups, Contents, Depths, Intents, Late, Uploads, Waiting, params};

/// A queue of this many rows, of 1, 2, 3... bytes.
pub(super) async fn queue(scene: &Scene, rows: u64) -> Vec<String> {
    let bucket = scene.bucket("queue").await;
    let mut keys = Vec::new();
    for number in 1..=rows {
        let intent = scene.staged(bucket, &format!("k{number:04}"), number).await;
        scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
        keys.push(intent.physical_key);
    }
    keys
}

fn retry(delay: Duration) -> Outcome {
    Outcome::Retry { delay, why: "access denied".to_owned() }
}

/// A claim takes what is due in its lane, the longest due first, up to its limit, once.
pub async fn a_claim_takes_what_is_due_once(scene: &Scene) {
    let keys = queue(scene, 5).await;
    scene.change("UPDATE cleanup_queue SET due = due + 1000 - id", vec![]).await;
    assert_eq!(scene.claim(9).await.1, [], "nothing is due");
    scene.clock.advance(Duration::from_secs(1));
    let claimant = scene.claimant();
    let elsewhere = scene.catalog.claim_cleanups(&backend("cloud"), 9, &claimant).await.expect("claimed").cleanups;
    assert_eq!(elsewhere, []);
    let names = |claimed: Vec<Cleanup>| claimed.into_iter().map(|c| c.physical_key).collect::<BTreeSet<_>>();
    assert_eq!(names(scene.claim(2).await.1), BTreeSet::from([keys[4].clone(), keys[3].clone()]));
    assert_eq!(names(scene.claim(9).await.1), keys[..3].iter().cloned().collect());
    assert_eq!(scene.claim(9).await.1, []);
}

/// A claim tells when it was made by the clock that also set the moments which its rows name.
pub async fn a_claim_tells_its_moment(scene: &Scene) {
    queue(scene, 2).await;
    scene.clock.advance(Duration::from_secs(5));
    let claimed = scene.catalog.claim_cleanups(&backend("disk"), 9, &scene.claimant()).await.expect("claimed");
    assert_eq!((claimed.cleanups.len(), claimed.at), (2, scene.clock.now()));
    assert_eq!(scene.number("SELECT min(claimed_at) FROM cleanup_queue").await, claimed.at.millis());
}

/// A lane has work while a row of it is due and nobody's.
pub async fn a_lane_knows_whether_it_has_work(scene: &Scene) {
    let lanes = async || scene.waiting().await.lanes.into_iter().collect::<Vec<_>>();
    assert_eq!(lanes().await, []);
    queue(scene, 1).await;
    assert_eq!(lanes().await, [backend("disk")]);
    let (token, claimed) = scene.claim(9).await;
    assert_eq!(lanes().await, [], "it is claimed");
    scene.settle(token, &claimed, &retry(Duration::from_secs(1))).await;
    assert_eq!(lanes().await, [], "it is not due");
    scene.clock.advance(Duration::from_secs(1));
    assert_eq!(lanes().await, [backend("disk")]);
}

/// A row that loses its claim is seen by the next look, however long it has been due.
pub async fn a_row_that_waits_again_is_seen_at_once(scene: &Scene) {
    queue(scene, 2).await;
    let (token, claimed) = scene.claim(1).await;
    let (_, rest) = scene.claim(1).await;
    scene.clock.advance(AGE);
    scene.waiting().await;
    let waiting = scene.waiting().await;
    assert!(waiting.claims && waiting.lanes.is_empty());
    assert_eq!(scene.settle(token, &claimed, &Outcome::Deferred).await, 1);
    assert_eq!(scene.waiting().await.lanes.len(), 1);
    let (again, claimed_again) = scene.claim(9).await;
    assert_eq!(claimed_again, claimed);
    assert_eq!(scene.settle(again, &claimed_again, &Outcome::Done).await, 1);
    assert!(scene.waiting().await.lanes.is_empty());
    assert_eq!(scene.catalog.free_stale_claims(AGE, scene.token()).await.expect("freed").len(), 1);
    let waiting = scene.waiting().await;
    assert!(!waiting.claims && waiting.lanes.len() == 1);
    assert_eq!(scene.claim(9).await.1, rest);
}

/// A row from long before the last look, however it came there, waits for ten looks at most.
pub async fn a_stray_row_is_seen_in_the_end(scene: &Scene) {
    queue(scene, 1).await;
    scene.clock.advance(Duration::from_mins(1));
    assert_eq!(scene.claim(9).await.1.len(), 1);
    scene.waiting().await;
    scene.change("UPDATE cleanup_queue SET token = NULL, claimed_by = NULL, claimed_at = NULL", vec![]).await;
    let mut looks = 1;
    while scene.waiting().await.lanes.is_empty() {
        looks += 1;
    }
    assert!(looks <= 10, "{looks}");
    assert_eq!(scene.claim(9).await.1.len(), 1);
}

/// What cleanup has to do besides deleting bytes is seen when its time has come.
pub async fn what_waits_is_seen_in_time(scene: &Scene) {
    assert_eq!(scene.waiting().await, Waiting::default());
    let bucket = scene.bucket("seen").await;
    scene.put(bucket, "a", 1).await;
    assert!(scene.delete(bucket, "a").await);
    let (token, claimed) = scene.claim(9).await;
    assert_eq!(scene.settle(token, &claimed, &Outcome::Done).await, 1);
    scene.wait_almost(AGE);
    assert_eq!(scene.waiting().await, Waiting::default());
    scene.clock.advance(Duration::from_millis(1));
    assert!(scene.waiting().await.contents);
    assert_eq!(scene.catalog.forget_condemned(AGE).await.expect("a step"), 1);
    assert_eq!(scene.waiting().await, Waiting::default());
    let upload = scene.upload(bucket, "b").await;
    scene.part(upload, 1, 1).await;
    Uploads::abort_upload(&scene.catalog, upload).await.expect("aborted");
    assert!(scene.waiting().await.contents);
}

/// Done rows go and release exactly what they charged.
pub async fn a_settlement_releases_what_the_row_charged(scene: &Scene) {
    queue(scene, 4).await;
    assert_eq!(scene.booked().await, (0, 10, 0));
    let (token, mut claimed) = scene.claim(9).await;
    claimed.sort_by_key(|cleanup| cleanup.id);
    assert_eq!(scene.settle(token, &claimed[1..2], &Outcome::Done).await, 1);
    assert_eq!(scene.booked().await, (0, 8, 0));
    assert_eq!(scene.settle(token, &claimed[3..], &Outcome::DoneAbsent).await, 1);
    assert_eq!(scene.booked().await, (0, 4, 0));
    assert_eq!(scene.settle(token, &claimed, &Outcome::Done).await, 2, "two were settled before");
    assert_eq!((scene.booked().await, scene.queued().await), ((0, 0, 0), vec![]));
}

/// One settlement may say something else of every row.
pub async fn a_settlement_judges_each_row(scene: &Scene) {
    queue(scene, 4).await;
    let (token, mut claimed) = scene.claim(9).await;
    claimed.sort_by_key(|cleanup| cleanup.id);
    let wait = Outcome::Wait { delay: Duration::from_secs(5), why: "nobody can tell".to_owned() };
    let outcomes = [Outcome::Done, Outcome::Deferred, wait, retry(Duration::from_secs(9))];
    let settlements: Vec<crate::Settlement> =
        claimed.iter().zip(outcomes).map(|(row, outcome)| crate::Settlement { id: row.id, outcome }).collect();
    assert_eq!(scene.catalog.settle_cleanups(token, &settlements).await.expect("settled").len(), 4);
    let due = |claimed: &[Cleanup]| claimed.iter().map(|c| (c.id, c.attempts)).collect::<Vec<_>>();
    assert_eq!(due(&scene.claim(9).await.1), [(claimed[1].id, 0)], "what is away stays due");
    scene.clock.advance(Duration::from_secs(5));
    assert_eq!(due(&scene.claim(9).await.1), [(claimed[2].id, 0)], "waiting spends no attempt");
    scene.clock.advance(Duration::from_secs(4));
    assert_eq!(due(&scene.claim(9).await.1), [(claimed[3].id, 1)], "a refusal spends one");
    let said = scene.rows("SELECT last_error FROM cleanup_queue WHERE attempts = 1", vec![]).await;
    assert_eq!(said[0].text(0).expect("what it said"), "access denied");
}

/// A token that is no longer on the row settles nothing, whatever it says.
pub async fn a_stale_token_settles_nothing(scene: &Scene) {
    queue(scene, 2).await;
    let (stale, claimed) = scene.claim(9).await;
    scene.settle(stale, &claimed, &Outcome::Deferred).await;
    let (token, again) = scene.claim(9).await;
    let dead = Outcome::DeadLetter { why: "access denied".to_owned() };
    for outcome in [Outcome::Done, Outcome::Deferred, retry(Duration::from_secs(9)), dead] {
        assert_eq!(scene.settle(stale, &claimed, &outcome).await, 0);
    }
    assert_eq!((scene.booked().await, scene.claim(9).await.1), ((0, 3, 0), vec![]), "the claim stands");
    assert_eq!(scene.settle(token, &again, &retry(Duration::ZERO)).await, 2);
    assert!(scene.claim(9).await.1.iter().all(|cleanup| cleanup.attempts == 1));
}

/// Claims older than the grace are freed, each once, and said to be; younger ones stand.
pub async fn stale_claims_are_freed_once(scene: &Scene) {
    queue(scene, 3).await;
    let (old, claimed) = scene.claim(2).await;
    scene.clock.advance(Duration::from_mins(9));
    let (young, rest) = scene.claim(2).await;
    scene.clock.advance(Duration::from_mins(1));
    let grace = Duration::from_mins(10);
    let freed = scene.catalog.free_stale_claims(grace, scene.token()).await.expect("freed");
    let named: Vec<_> = freed.iter().map(|claim| (&claim.backend, &claim.physical_key)).collect();
    let expected: Vec<_> = claimed.iter().map(|cleanup| (&cleanup.backend, &cleanup.physical_key)).collect();
    assert_eq!(named, expected, "and who held it: {freed:?}");
    assert!(freed.iter().all(|claim| !claim.claimed_by.is_empty()));
    assert_eq!(scene.catalog.free_stale_claims(grace, scene.token()).await.expect("freed"), []);
    assert_eq!(scene.settle(old, &claimed, &Outcome::Done).await, 0);
    assert_eq!(scene.settle(young, &rest, &Outcome::Done).await, 1);
    let (_, again) = scene.claim(9).await;
    assert_eq!(again.iter().map(|cleanup| cleanup.attempts).collect::<Vec<_>>(), [0, 0]);
}

/// Depths count what waits.
pub async fn depths_count_what_waits(scene: &Scene) {
    queue(scene, 2).await;
    let other = scene.bucket("other").await;
    let closed = scene.upload(other, "a").await;
    Uploads::abort_upload(&scene.catalog, closed).await.expect("aborted");
    let open = scene.upload(other, "b").await;
    scene.staged_part(open, 1, 1).await;
    let depths = scene.catalog.depths().await.expect("counted");
    assert_eq!(depths, Depths { cleanups: 2, dead_letters: 0, intents: 1, uploads: 1 });
}

/// Six claimers at once never hold the same row, and together they get all of them.
pub async fn claims_never_overlap(scene: &Scene) {
    const ROWS: i64 = 3_000;
    const FILL: &str = "INSERT INTO cleanup_queue \
         (backend_name, physical_key, size_bytes, stripe, reason, due, created_at) \
         WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1) \
         SELECT 'disk', 'k' || n, 1, 0, 'delete', :now, :now FROM numbers";
    scene.attach("disk", None).await;
    scene.change(FILL, params![ROWS]).await;
    scene.change("UPDATE backend_quotas SET orphan_bytes = $1 WHERE stripe = 0", params![ROWS]).await;
    let claimers = (0..6).map(|_| {
        let scene = scene.clone();
        async move {
            let mut mine = Vec::new();
            loop {
                let (token, claimed) = scene.claim(37).await;
                if claimed.is_empty() {
                    return mine;
                }
                assert_eq!(scene.settle(token, &claimed, &Outcome::Done).await, claimed.len());
                mine.extend(claimed.into_iter().map(|cleanup| cleanup.physical_key));
            }
        }
    });
    let all: Vec<String> = at_once(claimers.collect()).await.into_iter().flatten().collect();
    assert_eq!(all.len(), usize::try_from(ROWS).expect("small"));
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    assert_eq!(scene.booked().await, (0, 0, 0));
}

/// A cleanup whose key a location or an open write names is not handed out: the bytes stay, and a finding tells of them.
pub async fn a_cleanup_of_bytes_in_use_is_a_finding(scene: &Scene) {
    const NAME: &str = "UPDATE cleanup_queue SET physical_key = $1 WHERE physical_key = $2";
    let bucket = scene.bucket("used").await;
    scene.put(bucket, "a", 5).await;
    let used =
        scene.rows("SELECT physical_key FROM object_locations", vec![]).await[0].text(0).expect("a key").to_owned();
    let open = scene.staged(bucket, "b", 5).await;
    queue(scene, 3).await;
    let keys = scene.queued().await;
    scene.change(NAME, params![used.as_str(), keys[0].as_str()]).await;
    scene.change(NAME, params![open.physical_key.as_str(), keys[1].as_str()]).await;
    let orphan = scene.booked().await.1;
    let claimed = scene.catalog.claim_cleanups(&backend("disk"), 9, &scene.claimant()).await.expect("claimed");
    assert_eq!((claimed.cleanups.len(), claimed.named.len()), (1, 2));
    assert_eq!(claimed.cleanups[0].physical_key, keys[2]);
    let named: u64 = claimed.named.iter().map(|cleanup| cleanup.size_bytes).sum();
    assert_eq!(scene.booked().await.1 + named, orphan, "their bytes are those of the other row alone");
    assert_eq!(scene.queued().await, keys[2..]);
    assert_eq!(scene.number("SELECT count(*) FROM findings WHERE kind = 'still_named'").await, 2);
}
