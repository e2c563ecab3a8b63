//! Tests of the audits that compare counters with the rows they sum up.

use super::fixture::{ContentStanding, Fixture, at_once};
use crate::{AuditedStripe, Recounted, params};

async fn drifted(fixture: &Fixture) -> Vec<AuditedStripe> {
    let all = fixture.catalog.audit_quotas().await.expect("an audit");
    all.into_iter().filter(|audited| audited.drift_bytes() > 0).collect()
}

/// Writes rows of every kind that quota accounting sums up: 6 bytes used, 5 orphaned, 7 reserved.
async fn fill_quotas(fixture: &Fixture) -> s3o_model::ids::BucketId {
    let bucket = fixture.bucket("audit").await;
    fixture.put(bucket, "a", 5).await;
    fixture.put(bucket, "a", 6).await;
    fixture.staged(bucket, "b", 7).await;
    bucket
}

/// The audit sums up the rows of every backend, also of one without bytes.
pub async fn correct_quotas_show_no_drift(fixture: &Fixture) {
    fill_quotas(fixture).await;
    fixture.attach("cloud", Some(9)).await;
    let all = fixture.catalog.audit_quotas().await.expect("an audit");
    let sum = |pick: fn(&AuditedStripe) -> (i64, i64)| all.iter().map(|audited| pick(audited).1).sum::<i64>();
    assert_eq!((sum(|b| b.used), sum(|b| b.orphan), sum(|b| b.reserved)), (6, 5, 7));
    assert!(all.iter().any(|audited| audited.backend.as_str() == "cloud"));
    assert_eq!(drifted(fixture).await, []);
}

/// Counters that are too high, too low or zero get the sum of their rows.
pub async fn drift_is_repaired_in_both_directions(fixture: &Fixture) {
    const BREAK: &str = "UPDATE backend_quotas SET used_bytes = used_bytes + 100, orphan_bytes = 0, \
         reserved_bytes = reserved_bytes + 1 WHERE backend_name = 'disk'";
    fill_quotas(fixture).await;
    fixture.change(BREAK, vec![]).await;
    let found = drifted(fixture).await;
    assert!(!found.is_empty());
    for audited in &found {
        assert!(fixture.catalog.repair_quotas(audited).await.expect("a repair"));
    }
    assert_eq!((fixture.usage().await, drifted(fixture).await), ((6, 5, 7), vec![]));
}

/// Two audits found the same drift. The second repair returns false.
pub async fn repair_of_one_drift_is_applied_once(fixture: &Fixture) {
    fill_quotas(fixture).await;
    fixture.change("UPDATE backend_quotas SET used_bytes = used_bytes + 3 WHERE stripe = 0", vec![]).await;
    let (ours, theirs) = (drifted(fixture).await, drifted(fixture).await);
    assert!(fixture.catalog.repair_quotas(&ours[0]).await.expect("a repair"));
    assert!(!fixture.catalog.repair_quotas(&theirs[0]).await.expect("a repair"));
    assert_eq!(fixture.usage().await, (6, 5, 7));
}

/// The repair adds a difference, so writes and deletes after the audit stay counted.
pub async fn repair_keeps_concurrent_usage_changes(fixture: &Fixture) {
    let bucket = fill_quotas(fixture).await;
    fixture.change("UPDATE backend_quotas SET used_bytes = used_bytes + 50 WHERE stripe = 0", vec![]).await;
    let found = drifted(fixture).await;
    let writers = (0..20).map(|number| {
        let fixture = fixture.clone();
        async move {
            let name = format!("w{number}");
            fixture.put(bucket, &name, 3).await;
            if number % 2 == 0 {
                fixture.delete(bucket, &name).await;
            }
        }
    });
    let (ours, repairs) = (fixture.clone(), found.clone());
    let repairing = tokio::task::spawn(async move {
        for audited in &repairs {
            ours.catalog.repair_quotas(audited).await.expect("a repair");
        }
    });
    at_once(writers.collect()).await;
    repairing.await.expect("repaired");
    assert_eq!((fixture.usage().await, drifted(fixture).await), ((6 + 30, 5 + 30, 7), vec![]));
}

/// A page that is not full is the last one. Repaired counts are not reported again.
pub async fn reference_counts_are_audited_in_pages(fixture: &Fixture) {
    let bucket = fixture.bucket("pages").await;
    for number in 0..5 {
        fixture.put(bucket, &format!("k{number}"), 1).await;
    }
    fixture.change("UPDATE contents SET ref_count = 2", vec![]).await;
    let (mut after, mut seen, mut wrong) = (None, vec![], 0);
    loop {
        let page = fixture.catalog.audit_counts(after, 2).await.expect("a page");
        seen.push(page.seen);
        wrong += page.miscounted.len();
        fixture.recount(&page.miscounted).await;
        if page.seen < 2 {
            break;
        }
        after = page.last;
    }
    assert_eq!((seen, wrong), (vec![2, 2, 1], 5));
    assert_eq!(fixture.catalog.audit_counts(None, 9).await.expect("a page").miscounted, []);
}

/// A count too low or too high becomes the number of objects and parts that refer to the content.
pub async fn wrong_reference_counts_are_repaired(fixture: &Fixture) {
    let bucket = fixture.bucket("wrong").await;
    let low = fixture.put(bucket, "a", 5).await;
    fixture.copy((low, 5), bucket, "b").await.expect("copied");
    let upload = fixture.upload(bucket, "c").await;
    let part = fixture.part_of(upload, 1, (low, 5), crate::PartSource::Range { offset: 0 });
    fixture.store_part(part).await.expect("committed");
    let high = fixture.put(bucket, "d", 5).await;
    fixture.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![low]).await;
    fixture.change("UPDATE contents SET ref_count = 7 WHERE id = $1", params![high]).await;
    let page = fixture.catalog.audit_counts(None, 9).await.expect("a page");
    assert_eq!((page.miscounted.len(), page.unreferenced.len()), (2, 0));
    let mut repaired = fixture.recount(&page.miscounted).await;
    repaired.sort_by_key(|recounted| recounted.from);
    let expected = [Recounted { content: low, from: 0, to: 3 }, Recounted { content: high, from: 7, to: 1 }];
    assert_eq!(repaired, expected);
}

/// Content with the right count and content without a row are neither changed nor returned.
pub async fn recount_reports_only_wrong_counts(fixture: &Fixture) {
    let bucket = fixture.bucket("right").await;
    let content = fixture.put(bucket, "a", 5).await;
    assert_eq!(fixture.recount(&[content, fixture.content()]).await, []);
    assert_eq!(fixture.condemn_unreferenced(&[content]).await, []);
}

/// A repair of its count neither makes it live nor queues its bytes again.
pub async fn condemned_content_stays_condemned(fixture: &Fixture) {
    let bucket = fixture.bucket("gone").await;
    let content = fixture.put(bucket, "a", 5).await;
    assert!(fixture.delete(bucket, "a").await);
    fixture.change("UPDATE contents SET ref_count = 4 WHERE id = $1", params![content]).await;
    let page = fixture.catalog.audit_counts(None, 9).await.expect("a page");
    assert_eq!(page.miscounted, [content]);
    fixture.recount(&page.miscounted).await;
    let page = fixture.catalog.audit_counts(None, 9).await.expect("a page");
    assert_eq!((page.miscounted, page.unreferenced), (vec![], vec![]));
    assert_eq!(fixture.standing(content).await, ContentStanding::Condemned);
    assert_eq!((fixture.condemn_unreferenced(&[content]).await, fixture.queued().await.len()), (vec![], 1));
}

/// A count that was too high kept the content live after its last reference was deleted. The recount sets it to 0. Then
/// the content is condemned, and its bytes are queued and count as orphan bytes.
pub async fn unreferenced_content_is_condemned_after_recount(fixture: &Fixture) {
    let bucket = fixture.bucket("left").await;
    let content = fixture.put(bucket, "a", 5).await;
    fixture.change("UPDATE contents SET ref_count = 2 WHERE id = $1", params![content]).await;
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!(fixture.standing(content).await, ContentStanding::Live(1), "its count is too high");
    assert_eq!(fixture.condemn_unreferenced(&[content]).await, [], "its count is 1");
    let page = fixture.catalog.audit_counts(None, 9).await.expect("a page");
    assert_eq!((page.miscounted.clone(), page.unreferenced), (vec![content], vec![]));
    fixture.recount(&page.miscounted).await;
    let page = fixture.catalog.audit_counts(None, 9).await.expect("a page");
    assert_eq!((page.miscounted, page.unreferenced.clone()), (vec![], vec![content]));
    let condemned = fixture.condemn_unreferenced(&page.unreferenced).await;
    let (disk, key, size) = condemned[0].place.clone().expect("its bytes");
    assert_eq!((disk.as_str(), size, fixture.queued().await), ("disk", 5, vec![key]));
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Condemned, (0, 5, 0)));
    assert_eq!(fixture.condemn_unreferenced(&[content]).await, [], "once");
}

/// A row that refers to the content keeps it live, though its count is 0.
pub async fn referenced_content_is_not_condemned(fixture: &Fixture) {
    let bucket = fixture.bucket("used").await;
    let content = fixture.put(bucket, "a", 5).await;
    fixture.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![content]).await;
    assert_eq!(fixture.condemn_unreferenced(&[content]).await, []);
    assert_eq!(fixture.recount(&[content]).await.len(), 1);
    assert_eq!(fixture.standing(content).await, ContentStanding::Live(1));
}

/// Recounts run while ten tasks copy the content and delete the copies.
pub async fn counts_stay_exact_with_recounts_during_copies_and_deletes(fixture: &Fixture) {
    let bucket = fixture.bucket("busy").await;
    let content = fixture.put(bucket, "a", 5).await;
    let recounter = fixture.clone();
    let recounting = tokio::task::spawn(async move {
        for _ in 0..30 {
            recounter.change("UPDATE contents SET ref_count = ref_count + 1 WHERE id = $1", params![content]).await;
            recounter.recount(&[content]).await;
            recounter.condemn_unreferenced(&[content]).await;
        }
    });
    let users = (0..10).map(|number| {
        let fixture = fixture.clone();
        async move {
            let name = format!("c{number}");
            for _ in 0..5 {
                fixture.copy((content, 5), bucket, &name).await.expect("copied");
                assert!(fixture.delete(bucket, &name).await);
            }
        }
    });
    at_once(users.collect()).await;
    recounting.await.expect("recounted");
    assert_eq!(fixture.standing(content).await, ContentStanding::Live(1));
}

/// The difference was computed for the confirmed count and is wrong for any other.
pub async fn recount_skips_count_that_changed_since_confirmation(fixture: &Fixture) {
    let bucket = fixture.bucket("changed").await;
    let content = fixture.put(bucket, "a", 5).await;
    fixture.change("UPDATE contents SET ref_count = 3", vec![]).await;
    let seen = fixture.catalog.confirm_suspects(&[content]).await.expect("confirmed");
    fixture.copy((content, 5), bucket, "b").await.expect("copied");
    assert_eq!(fixture.catalog.recount(&seen).await.expect("a unit"), []);
    assert_eq!(fixture.standing(content).await, ContentStanding::Live(4));
    assert_eq!(fixture.recount(&[content]).await, [Recounted { content, from: 4, to: 2 }]);
}

/// The next audit with few suspects deletes the finding.
pub async fn too_many_suspects_create_one_finding(fixture: &Fixture) {
    const FINDINGS: &str = "SELECT count(*) FROM findings WHERE kind = 'miscounted'";
    for suspects in [1001, 1002] {
        fixture.catalog.note_suspects(suspects).await.expect("noted");
        assert_eq!(fixture.number(FINDINGS).await, 1);
    }
    fixture.catalog.note_suspects(0).await.expect("noted");
    assert_eq!(fixture.number(FINDINGS).await, 0);
}
