//! Facts about dead letters.

use std::collections::BTreeSet;
use std::time::Duration;

use s3o_model::cleanup::{Outcome, Selection};
use s3o_model::clock::Timestamp;
use s3o_model::dead_letter::DeadLetter;
use s3o_model::ids::DeadLetterId;

use super::cleanups::queue;
use super::scene::{Scene, at_once, backend};
use crate::{Cleanups, DeadLetters, Discard, FindingSelection, Findings as _, Intents, Late, params};

fn dead() -> Outcome {
    Outcome::DeadLetter { why: "access denied".to_owned() }
}

/// Dead letters of 1, 2, 3... bytes, and their physical keys.
async fn bury(scene: &Scene, rows: u64) -> Vec<String> {
    let keys = queue(scene, rows).await;
    let (token, claimed) = scene.claim(usize::try_from(rows).expect("small")).await;
    assert_eq!(scene.settle(token, &claimed, &dead()).await, claimed.len());
    keys
}

async fn listed(scene: &Scene, which: &Selection) -> Vec<DeadLetter> {
    scene.catalog.dead_letters(which, 0, 1000).await.expect("a page")
}

async fn all(scene: &Scene) -> Vec<DeadLetter> {
    listed(scene, &Selection::default()).await
}

async fn retry(scene: &Scene, letters: &[DeadLetter]) -> Vec<DeadLetter> {
    let ids: Vec<DeadLetterId> = letters.iter().map(|letter| letter.id).collect();
    scene.catalog.retry_dead_letters(&ids, scene.token()).await.expect("sent back")
}

async fn discard(scene: &Scene, letter: &DeadLetter, written_off: Option<&str>) -> Vec<DeadLetter> {
    let discard = Discard { id: letter.id, written_off: written_off.map(str::to_owned) };
    scene.catalog.discard_dead_letters(&[discard], scene.token()).await.expect("discarded")
}

/// The row moves with all it says, and its bytes stay in the books.
pub async fn the_last_refusal_moves_the_row(scene: &Scene) {
    queue(scene, 2).await;
    scene.change("UPDATE cleanup_queue SET attempts = 9, backend_version = 'v', absent_ok_after = 5", vec![]).await;
    let created_at = scene.now();
    scene.clock.advance(Duration::from_secs(1));
    let (token, mut claimed) = scene.claim(9).await;
    claimed.sort_by_key(|cleanup| cleanup.id);
    assert_eq!(scene.settle(token, &claimed[..1], &dead()).await, 1);
    let letters = all(scene).await;
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    assert_eq!((letter.original_id, &letter.physical_key), (claimed[0].id, &claimed[0].physical_key));
    assert_eq!((letter.size_bytes, letter.attempts, letter.reason.as_str()), (1, 10, "put_orphan"));
    assert_eq!((letter.last_error.as_deref(), letter.backend_version.as_deref()), (Some("access denied"), Some("v")));
    assert_eq!((letter.created_at, letter.dead_since), (created_at, scene.now()));
    assert_eq!(letter.absent_ok_after, Some(Timestamp::from_millis(5)));
    assert_eq!(scene.catalog.dead_letter(letter.id).await.expect("a look").as_ref(), Some(letter));
    assert_eq!(scene.catalog.newest_dead_letter().await.expect("a look"), Some(letter.id));
    assert_eq!((scene.booked().await, scene.queued().await.len()), ((0, 3, 0), 1));
    let depths = scene.catalog.depths().await.expect("counted");
    assert_eq!((depths.cleanups, depths.dead_letters), (1, 1));
}

/// Who lost the claim buries nothing, and is told so.
pub async fn a_stale_token_buries_nothing(scene: &Scene) {
    queue(scene, 2).await;
    let (stale, claimed) = scene.claim(9).await;
    scene.settle(stale, &claimed, &Outcome::Deferred).await;
    let (token, again) = scene.claim(1).await;
    assert_eq!(scene.settle(stale, &claimed, &dead()).await, 0);
    assert_eq!((all(scene).await, scene.queued().await.len()), (vec![], 2));
    assert_eq!(scene.settle(token, &again, &dead()).await, 1);
    assert_eq!(scene.settle(token, &again, &dead()).await, 0, "once");
    assert_eq!((all(scene).await.len(), scene.booked().await), (1, (0, 3, 0)));
}

/// A retried dead letter is due at once with no attempt spent, and remembers where it came from.
pub async fn a_retry_starts_again(scene: &Scene) {
    let keys = bury(scene, 2).await;
    let letters = all(scene).await;
    assert_eq!(retry(scene, &letters[..1]).await, letters[..1]);
    assert_eq!(retry(scene, &letters[..1]).await, [], "it is no dead letter any more");
    assert_eq!((scene.queued().await, scene.booked().await), (keys[..1].to_vec(), (0, 3, 0)));
    let (token, claimed) = scene.claim(9).await;
    assert_eq!(claimed.iter().map(|cleanup| cleanup.attempts).collect::<Vec<_>>(), [0]);
    scene.settle(token, &claimed, &dead()).await;
    let again = all(scene).await;
    assert_eq!(again.iter().map(|letter| letter.original_id).collect::<Vec<_>>(), {
        let [first, second] = letters.as_slice() else { panic!("{letters:?}") };
        [second.original_id, first.original_id]
    });
    assert!(again[1].id > letters[1].id, "a number is not used again");
    retry(scene, &again).await;
    scene.clean_up().await;
    assert_eq!(scene.booked().await, (0, 0, 0));
}

/// Pages follow each other; a selection shows its own.
pub async fn dead_letters_come_in_pages(scene: &Scene) {
    bury(scene, 5).await;
    scene.change("UPDATE cleanup_dlq SET reason = 'delete' WHERE size_bytes > 3", vec![]).await;
    let everything = all(scene).await;
    let mut paged = Vec::new();
    loop {
        let after = paged.last().map_or(0, |letter: &DeadLetter| letter.id.0);
        let page = scene.catalog.dead_letters(&Selection::default(), after, 2).await.expect("a page");
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 2);
        paged.extend(page);
    }
    assert_eq!(paged, everything);
    let of = |backend_name: Option<&str>, reason: Option<&str>| Selection {
        backend: backend_name.map(backend),
        reason: reason.map(str::to_owned),
    };
    for (which, count) in [
        (of(Some("disk"), None), 5),
        (of(Some("cloud"), None), 0),
        (of(None, Some("delete")), 2),
        (of(Some("disk"), Some("put_orphan")), 3),
        (of(Some("cloud"), Some("delete")), 0),
    ] {
        assert_eq!(listed(scene, &which).await.len(), count, "{which:?}");
    }
}

/// The queue is listed in the same way, claimed rows too.
pub async fn the_queue_comes_in_pages(scene: &Scene) {
    let keys = queue(scene, 3).await;
    let (_, claimed) = scene.claim(1).await;
    let page = scene.catalog.queued_cleanups(&Selection::default(), 0, 2).await.expect("a page");
    let rest = scene.catalog.queued_cleanups(&Selection::default(), page[1].cleanup.id.0, 9).await.expect("a page");
    let found: Vec<_> = page.iter().chain(&rest).map(|row| row.cleanup.physical_key.clone()).collect();
    assert_eq!(found, keys);
    let held: Vec<_> = page.iter().chain(&rest).filter(|row| row.claimed_by.is_some()).collect();
    assert_eq!(held.iter().map(|row| row.cleanup.id).collect::<Vec<_>>(), [claimed[0].id]);
    let other = Selection { reason: Some("delete".to_owned()), ..Selection::default() };
    assert_eq!(scene.catalog.queued_cleanups(&other, 0, 9).await.expect("a page"), []);
}

/// Bytes that are gone leave the books without a trace.
pub async fn what_is_gone_is_written_off_silently(scene: &Scene) {
    bury(scene, 3).await;
    let letters = all(scene).await;
    assert_eq!(discard(scene, &letters[1], None).await, letters[1..2]);
    assert_eq!(discard(scene, &letters[1], None).await, [], "once");
    assert_eq!((all(scene).await.len(), scene.booked().await), (2, (0, 4, 0)));
    assert_eq!(scene.catalog.written_off().await.expect("sums"), []);
}

/// Bytes that may be there leave the books for the findings: the sum of all stays the same.
pub async fn what_may_be_there_leaves_a_finding(scene: &Scene) {
    bury(scene, 3).await;
    let letters = all(scene).await;
    assert_eq!(discard(scene, &letters[2], Some("{\"why\":\"there\"}")).await, letters[2..]);
    assert_eq!(discard(scene, &letters[1], Some("{}")).await, letters[1..2]);
    assert_eq!(scene.booked().await, (0, 1, 0));
    assert_eq!(scene.catalog.written_off().await.expect("sums"), [(backend("disk"), 5)]);
    let found = scene.rows("SELECT kind, physical_key, size_bytes, detail FROM findings ORDER BY id", vec![]).await;
    assert_eq!((found[0].text(0).expect("a kind"), found[0].int(2).expect("a size")), ("written_off", 3));
    assert_eq!(found[0].text(1).expect("a key"), letters[2].physical_key);
    assert_eq!(found[0].text(3).expect("a detail"), "{\"why\":\"there\"}");
}

/// Findings are read in pages, by kind and by backend.
pub async fn findings_come_in_pages(scene: &Scene) {
    bury(scene, 3).await;
    let letters = all(scene).await;
    for letter in &letters {
        discard(scene, letter, Some("{}")).await;
    }
    let page = async |which: FindingSelection, after, limit| {
        scene.catalog.findings(&which, after, limit).await.expect("a page")
    };
    let found = page(FindingSelection::default(), 0, 10).await;
    let keys: Vec<&str> = found.iter().map(|finding| finding.physical_key.as_str()).collect();
    let expected: Vec<&str> = letters.iter().map(|letter| letter.physical_key.as_str()).collect();
    assert_eq!(keys, expected);
    assert_eq!((found[0].kind.as_str(), found[0].backend.as_str(), found[0].size_bytes), ("written_off", "disk", 1));
    assert_eq!((found[0].detail.as_str(), found[0].created_at), ("{}", scene.now()));
    assert_eq!(page(FindingSelection::default(), found[0].id, 1).await, found[1..2]);
    let of = |backend: Option<&str>, kind: Option<&str>| FindingSelection {
        backend: backend.map(str::to_owned),
        kind: kind.map(str::to_owned),
    };
    assert_eq!(page(of(Some("disk"), Some("written_off")), 0, 10).await, found);
    assert_eq!(page(of(Some("other"), None), 0, 10).await, []);
    assert_eq!(page(of(None, Some("other")), 0, 10).await, []);
}

/// One call may discard some silently and write others off; what it names besides is left alone.
pub async fn a_discard_judges_each_row(scene: &Scene) {
    bury(scene, 3).await;
    let letters = all(scene).await;
    let discards = [
        Discard { id: letters[0].id, written_off: None },
        Discard { id: letters[2].id, written_off: Some("{}".to_owned()) },
        Discard { id: DeadLetterId(999_999), written_off: Some("{}".to_owned()) },
    ];
    let gone = scene.catalog.discard_dead_letters(&discards, scene.token()).await.expect("discarded");
    assert_eq!(gone, [letters[0].clone(), letters[2].clone()]);
    assert_eq!((all(scene).await, scene.booked().await), (letters[1..2].to_vec(), (0, 2, 0)));
    assert_eq!(scene.catalog.written_off().await.expect("sums"), [(backend("disk"), 3)]);
}

/// A fenced writer whose bytes land late finds its dead letter: they are neither booked nor named twice.
pub async fn a_requeued_write_finds_its_dead_letter(scene: &Scene) {
    let intent = scene.staged(scene.bucket("late").await, "a", 5).await;
    scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    let (token, claimed) = scene.claim(9).await;
    scene.settle(token, &claimed, &dead()).await;
    scene
        .catalog
        .requeue(&intent, &crate::Ended { backend_version: Some("v7".to_owned()), ..crate::Ended::default() })
        .await
        .expect("queued");
    assert_eq!((scene.booked().await, scene.queued().await), ((0, 5, 0), vec![]));
    let letters = all(scene).await;
    assert_eq!(letters[0].backend_version.as_deref(), Some("v7"));
    scene.catalog.requeue(&intent, &crate::Ended::default()).await.expect("queued");
    assert_eq!(all(scene).await[0].backend_version.as_deref(), Some("v7"), "what is known is kept");
    discard(scene, &letters[0], Some("{}")).await;
    scene.catalog.requeue(&intent, &crate::Ended::default()).await.expect("queued");
    assert_eq!(scene.booked().await, (0, 5, 0));
    assert_eq!(scene.catalog.written_off().await.expect("sums"), [], "they are a cleanup again");
}

/// Whatever becomes of the cleanup at that very moment, a requeued write is named and booked once.
pub async fn a_requeue_meets_whatever_becomes_of_its_cleanup(scene: &Scene) {
    let bucket = scene.bucket("meeting").await;
    for round in 0..20 {
        let intent = scene.staged(bucket, &format!("k{round}"), 5).await;
        scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
        let (token, claimed) = scene.claim(1).await;
        let requeue = async || scene.catalog.requeue(&intent, &crate::Ended::default()).await.expect("queued");
        let last = dead();
        tokio::join!(requeue(), scene.settle(token, &claimed, &last));
        // Whoever was first: the row was buried, or its claim had ended.
        let (token, claimed) = scene.claim(1).await;
        scene.settle(token, &claimed, &dead()).await;
        let letters = all(scene).await;
        assert_eq!((letters.len(), scene.booked().await), (1, (0, 5, 0)));
        tokio::join!(requeue(), retry(scene, &letters));
        assert_eq!((all(scene).await, scene.booked().await), (vec![], (0, 5, 0)));
        let (token, claimed) = scene.claim(9).await;
        assert_eq!(scene.settle(token, &claimed, &Outcome::Done).await, 1);
    }
}

/// A thousand go at once; two who want the same rows share them, and the books stay in order.
pub async fn everybody_gets_a_dead_letter_once(scene: &Scene) {
    const ROWS: i64 = 1_000;
    const FILL: &str = "INSERT INTO cleanup_dlq (original_id, backend_name, physical_key, size_bytes, stripe, reason, \
         attempts, created_at, dead_since) \
         WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1) \
         SELECT n, 'disk', 'k' || n, 1, 0, 'delete', 10, :now, :now FROM numbers";
    scene.attach("disk", None).await;
    scene.change(FILL, params![ROWS]).await;
    scene.change("UPDATE backend_quotas SET orphan_bytes = $1 WHERE stripe = 0", params![ROWS]).await;
    let letters = all(scene).await;
    let tasks = (0..6).map(|number| {
        let (scene, letters) = (scene.clone(), letters.clone());
        async move {
            if number % 2 == 0 {
                return retry(&scene, &letters).await;
            }
            let discards: Vec<_> = letters.iter().map(|letter| Discard { id: letter.id, written_off: None }).collect();
            scene.catalog.discard_dead_letters(&discards, scene.token()).await.expect("discarded")
        }
    });
    let handled: Vec<DeadLetterId> =
        at_once(tasks.collect()).await.into_iter().flatten().map(|letter| letter.id).collect();
    assert_eq!(handled.len(), letters.len());
    assert_eq!(handled.iter().collect::<BTreeSet<_>>().len(), letters.len());
    assert_eq!(all(scene).await, []);
}
