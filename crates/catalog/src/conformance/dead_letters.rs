//! Tests of dead letters.

use std::collections::BTreeSet;
use std::time::Duration;

use s3o_model::cleanup::{Outcome, Selection};
use s3o_model::clock::Timestamp;
use s3o_model::dead_letter::DeadLetter;
use s3o_model::ids::DeadLetterId;
use s3o_model::target::Target;

use super::cleanups::queue;
use super::fixture::{Fixture, at_once, backend};
use crate::{Discard, FindingSelection, Late, params};

fn dead() -> Outcome {
    Outcome::DeadLetter { why: "access denied".to_owned() }
}

/// Creates dead letters of 1, 2, 3... bytes; returns their physical keys.
async fn create_dead_letters(fixture: &Fixture, rows: u64) -> Vec<String> {
    let keys = queue(fixture, rows).await;
    let (token, claimed) = fixture.claim(usize::try_from(rows).expect("small")).await;
    assert_eq!(fixture.settle(token, &claimed, &dead()).await, claimed.len());
    keys
}

async fn listed(fixture: &Fixture, which: &Selection) -> Vec<DeadLetter> {
    fixture.catalog.dead_letters(which, 0, 1000).await.expect("a page")
}

async fn all(fixture: &Fixture) -> Vec<DeadLetter> {
    listed(fixture, &Selection::default()).await
}

async fn retry(fixture: &Fixture, letters: &[DeadLetter]) -> Vec<DeadLetter> {
    let ids: Vec<DeadLetterId> = letters.iter().map(|letter| letter.id).collect();
    fixture.catalog.retry_dead_letters(&ids, fixture.token()).await.expect("sent back")
}

async fn discard(fixture: &Fixture, letter: &DeadLetter, written_off: Option<&str>) -> Vec<DeadLetter> {
    let discard = Discard { id: letter.id, written_off: written_off.map(str::to_owned) };
    fixture.catalog.discard_dead_letters(&[discard], fixture.token()).await.expect("discarded")
}

fn version(id: &str) -> Target {
    Target::Version(id.to_owned())
}

/// All columns are kept, and the bytes stay orphan bytes.
pub async fn last_refusal_moves_row_to_dead_letters(fixture: &Fixture) {
    queue(fixture, 2).await;
    fixture.change("UPDATE cleanup_queue SET attempts = 9, target = 'version:v', absent_ok_after = 5", vec![]).await;
    let created_at = fixture.now();
    fixture.clock.advance(Duration::from_secs(1));
    let (token, mut claimed) = fixture.claim(9).await;
    claimed.sort_by_key(|cleanup| cleanup.id);
    assert_eq!(fixture.settle(token, &claimed[..1], &dead()).await, 1);
    let letters = all(fixture).await;
    let [letter] = letters.as_slice() else { panic!("{letters:?}") };
    assert_eq!((letter.original_id, &letter.physical_key), (claimed[0].id, &claimed[0].physical_key));
    assert_eq!((letter.size_bytes, letter.attempts, letter.reason.as_str()), (1, 10, "put_orphan"));
    assert_eq!((letter.last_error.as_deref(), &letter.target), (Some("access denied"), &version("v")));
    assert_eq!((letter.created_at, letter.dead_since), (created_at, fixture.now()));
    assert_eq!(letter.absent_ok_after, Some(Timestamp::from_millis(5)));
    assert_eq!(fixture.catalog.dead_letter(letter.id).await.expect("a query").as_ref(), Some(letter));
    assert_eq!(fixture.catalog.newest_dead_letter().await.expect("a query"), Some(letter.id));
    assert_eq!((fixture.usage().await, fixture.queued().await.len()), ((0, 3, 0), 1));
    let depths = fixture.catalog.depths().await.expect("counted");
    assert_eq!((depths.cleanups, depths.dead_letters), (1, 1));
}

/// `settle_cleanups` returns no row for a token that lost its claim.
pub async fn stale_token_creates_no_dead_letter(fixture: &Fixture) {
    queue(fixture, 2).await;
    let (stale, claimed) = fixture.claim(9).await;
    fixture.settle(stale, &claimed, &Outcome::Deferred).await;
    let (token, again) = fixture.claim(1).await;
    assert_eq!(fixture.settle(stale, &claimed, &dead()).await, 0);
    assert_eq!((all(fixture).await, fixture.queued().await.len()), (vec![], 2));
    assert_eq!(fixture.settle(token, &again, &dead()).await, 1);
    assert_eq!(fixture.settle(token, &again, &dead()).await, 0, "once");
    assert_eq!((all(fixture).await.len(), fixture.usage().await), (1, (0, 3, 0)));
}

/// It is due at once. If it is refused again, the new dead letter keeps the original ID.
pub async fn retried_dead_letter_starts_without_attempts(fixture: &Fixture) {
    let keys = create_dead_letters(fixture, 2).await;
    let letters = all(fixture).await;
    assert_eq!(retry(fixture, &letters[..1]).await, letters[..1]);
    assert_eq!(retry(fixture, &letters[..1]).await, [], "it is queued again");
    assert_eq!((fixture.queued().await, fixture.usage().await), (keys[..1].to_vec(), (0, 3, 0)));
    let (token, claimed) = fixture.claim(9).await;
    assert_eq!(claimed.iter().map(|cleanup| cleanup.attempts).collect::<Vec<_>>(), [0]);
    fixture.settle(token, &claimed, &dead()).await;
    let again = all(fixture).await;
    assert_eq!(again.iter().map(|letter| letter.original_id).collect::<Vec<_>>(), {
        let [first, second] = letters.as_slice() else { panic!("{letters:?}") };
        [second.original_id, first.original_id]
    });
    assert!(again[1].id > letters[1].id, "IDs are not reused");
    retry(fixture, &again).await;
    fixture.clean_up().await;
    assert_eq!(fixture.usage().await, (0, 0, 0));
}

/// They can be selected by backend and by reason.
pub async fn dead_letters_are_listed_in_pages(fixture: &Fixture) {
    create_dead_letters(fixture, 5).await;
    fixture.change("UPDATE cleanup_dlq SET reason = 'delete' WHERE size_bytes > 3", vec![]).await;
    let everything = all(fixture).await;
    let mut paged = Vec::new();
    loop {
        let after = paged.last().map_or(0, |letter: &DeadLetter| letter.id.0);
        let page = fixture.catalog.dead_letters(&Selection::default(), after, 2).await.expect("a page");
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
        assert_eq!(listed(fixture, &which).await.len(), count, "{which:?}");
    }
}

/// Claimed rows are included.
pub async fn queued_cleanups_are_listed_in_pages(fixture: &Fixture) {
    let keys = queue(fixture, 3).await;
    let (_, claimed) = fixture.claim(1).await;
    let page = fixture.catalog.queued_cleanups(&Selection::default(), 0, 2).await.expect("a page");
    let rest = fixture.catalog.queued_cleanups(&Selection::default(), page[1].cleanup.id.0, 9).await.expect("a page");
    let found: Vec<_> = page.iter().chain(&rest).map(|row| row.cleanup.physical_key.clone()).collect();
    assert_eq!(found, keys);
    let held: Vec<_> = page.iter().chain(&rest).filter(|row| row.claimed_by.is_some()).collect();
    assert_eq!(held.iter().map(|row| row.cleanup.id).collect::<Vec<_>>(), [claimed[0].id]);
    let other = Selection { reason: Some("delete".to_owned()), ..Selection::default() };
    assert_eq!(fixture.catalog.queued_cleanups(&other, 0, 9).await.expect("a page"), []);
}

/// The bytes leave the quota accounting.
pub async fn discard_of_deleted_bytes_leaves_no_finding(fixture: &Fixture) {
    create_dead_letters(fixture, 3).await;
    let letters = all(fixture).await;
    assert_eq!(discard(fixture, &letters[1], None).await, letters[1..2]);
    assert_eq!(discard(fixture, &letters[1], None).await, [], "once");
    assert_eq!((all(fixture).await.len(), fixture.usage().await), (2, (0, 4, 0)));
    assert_eq!(fixture.catalog.written_off().await.expect("sums"), []);
}

/// The bytes move from the orphan bytes to a `written_off` finding, so their sum stays the same.
pub async fn discard_of_undeleted_bytes_leaves_a_finding(fixture: &Fixture) {
    create_dead_letters(fixture, 3).await;
    let letters = all(fixture).await;
    assert_eq!(discard(fixture, &letters[2], Some("{\"why\":\"there\"}")).await, letters[2..]);
    assert_eq!(discard(fixture, &letters[1], Some("{}")).await, letters[1..2]);
    assert_eq!(fixture.usage().await, (0, 1, 0));
    assert_eq!(fixture.catalog.written_off().await.expect("sums"), [(backend("disk"), 5)]);
    let found = fixture.rows("SELECT kind, physical_key, size_bytes, detail FROM findings ORDER BY id", vec![]).await;
    assert_eq!(
        (found[0].text("kind").expect("a kind"), found[0].int("size_bytes").expect("a size")),
        ("written_off", 3)
    );
    assert_eq!(found[0].text("physical_key").expect("a key"), letters[2].physical_key);
    assert_eq!(found[0].text("detail").expect("a detail"), "{\"why\":\"there\"}");
}

/// They can be selected by kind and by backend.
pub async fn findings_are_listed_in_pages(fixture: &Fixture) {
    create_dead_letters(fixture, 3).await;
    let letters = all(fixture).await;
    for letter in &letters {
        discard(fixture, letter, Some("{}")).await;
    }
    let page = async |which: FindingSelection, after, limit| {
        fixture.catalog.findings(&which, after, limit).await.expect("a page")
    };
    let found = page(FindingSelection::default(), 0, 10).await;
    let keys: Vec<&str> = found.iter().map(|finding| finding.physical_key.as_str()).collect();
    let expected: Vec<&str> = letters.iter().map(|letter| letter.physical_key.as_str()).collect();
    assert_eq!(keys, expected);
    assert_eq!((found[0].kind.as_str(), found[0].backend.as_str(), found[0].size_bytes), ("written_off", "disk", 1));
    assert_eq!((found[0].detail.as_str(), found[0].created_at), ("{}", fixture.now()));
    assert_eq!(page(FindingSelection::default(), found[0].id, 1).await, found[1..2]);
    let of = |backend: Option<&str>, kind: Option<&str>| FindingSelection {
        backend: backend.map(str::to_owned),
        kind: kind.map(str::to_owned),
    };
    assert_eq!(page(of(Some("disk"), Some("written_off")), 0, 10).await, found);
    assert_eq!(page(of(Some("other"), None), 0, 10).await, []);
    assert_eq!(page(of(None, Some("other")), 0, 10).await, []);
}

/// One call discards some rows with a finding and some without. An unknown ID is ignored.
pub async fn discard_decides_for_each_row(fixture: &Fixture) {
    create_dead_letters(fixture, 3).await;
    let letters = all(fixture).await;
    let discards = [
        Discard { id: letters[0].id, written_off: None },
        Discard { id: letters[2].id, written_off: Some("{}".to_owned()) },
        Discard { id: DeadLetterId(999_999), written_off: Some("{}".to_owned()) },
    ];
    let discarded = fixture.catalog.discard_dead_letters(&discards, fixture.token()).await.expect("discarded");
    assert_eq!(discarded, [letters[0].clone(), letters[2].clone()]);
    assert_eq!((all(fixture).await, fixture.usage().await), (letters[1..2].to_vec(), (0, 2, 0)));
    assert_eq!(fixture.catalog.written_off().await.expect("sums"), [(backend("disk"), 3)]);
}

/// The bytes of a fenced writer that arrive late are neither counted nor named twice.
pub async fn requeued_write_updates_its_dead_letter(fixture: &Fixture) {
    let intent = fixture.staged(fixture.bucket("late").await, "a", 5).await;
    fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
    let (token, claimed) = fixture.claim(9).await;
    fixture.settle(token, &claimed, &dead()).await;
    fixture
        .catalog
        .requeue(
            &intent.place(),
            intent.size_bytes,
            &crate::Ended { backend_version: Some("v7".to_owned()), ..crate::Ended::default() },
        )
        .await
        .expect("queued");
    assert_eq!((fixture.usage().await, fixture.queued().await), ((0, 5, 0), vec![]));
    let letters = all(fixture).await;
    assert_eq!(letters[0].target, version("v7"));
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &crate::Ended::default()).await.expect("queued");
    assert_eq!(all(fixture).await[0].target, version("v7"), "what is known is kept");
    discard(fixture, &letters[0], Some("{}")).await;
    fixture.catalog.requeue(&intent.place(), intent.size_bytes, &crate::Ended::default()).await.expect("queued");
    assert_eq!(fixture.usage().await, (0, 5, 0));
    assert_eq!(fixture.catalog.written_off().await.expect("sums"), [], "they are queued again");
}

/// The requeue runs at the same time as the settlement of its cleanup, then as the retry of its dead letter.
pub async fn requeued_write_is_counted_once_during_settle_and_retry(fixture: &Fixture) {
    let bucket = fixture.bucket("meeting").await;
    for round in 0..20 {
        let intent = fixture.staged(bucket, &format!("k{round}"), 5).await;
        fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
        let (token, claimed) = fixture.claim(1).await;
        let (place, ended) = (intent.place(), crate::Ended::default());
        let requeue = async || fixture.catalog.requeue(&place, intent.size_bytes, &ended).await.expect("queued");
        let last = dead();
        tokio::join!(requeue(), fixture.settle(token, &claimed, &last));
        // The row is a dead letter now, or the requeue ended its claim.
        let (token, claimed) = fixture.claim(1).await;
        fixture.settle(token, &claimed, &dead()).await;
        let letters = all(fixture).await;
        assert_eq!((letters.len(), fixture.usage().await), (1, (0, 5, 0)));
        tokio::join!(requeue(), retry(fixture, &letters));
        assert_eq!((all(fixture).await, fixture.usage().await), (vec![], (0, 5, 0)));
        let (token, claimed) = fixture.claim(9).await;
        assert_eq!(fixture.settle(token, &claimed, &Outcome::Done).await, 1);
    }
}

/// Six tasks handle the same thousand rows.
pub async fn concurrent_retries_and_discards_take_each_dead_letter_once(fixture: &Fixture) {
    const ROWS: i64 = 1_000;
    const FILL: &str = "INSERT INTO cleanup_dlq (original_id, backend_name, physical_key, size_bytes, stripe, reason, \
         attempts, created_at, dead_since) \
         WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1) \
         SELECT n, 'disk', 'k' || n, 1, 0, 'delete', 10, :now, :now FROM numbers";
    fixture.attach("disk", None).await;
    fixture.change(FILL, params![ROWS]).await;
    fixture.change("UPDATE backend_quotas SET orphan_bytes = $1 WHERE stripe = 0", params![ROWS]).await;
    let letters = all(fixture).await;
    let tasks = (0..6).map(|number| {
        let (fixture, letters) = (fixture.clone(), letters.clone());
        async move {
            if number % 2 == 0 {
                return retry(&fixture, &letters).await;
            }
            let discards: Vec<_> = letters.iter().map(|letter| Discard { id: letter.id, written_off: None }).collect();
            fixture.catalog.discard_dead_letters(&discards, fixture.token()).await.expect("discarded")
        }
    });
    let handled: Vec<DeadLetterId> =
        at_once(tasks.collect()).await.into_iter().flatten().map(|letter| letter.id).collect();
    assert_eq!(handled.len(), letters.len());
    assert_eq!(handled.iter().collect::<BTreeSet<_>>().len(), letters.len());
    assert_eq!(all(fixture).await, []);
}
