//! Facts about comparing what the catalog says twice.

use super::scene::{Scene, Standing, at_once};
use crate::{Audits, Booked, Recounted, params};

async fn drifted(scene: &Scene) -> Vec<Booked> {
    let all = scene.catalog.audit_books().await.expect("an audit");
    all.into_iter().filter(|booked| booked.drift_bytes() > 0).collect()
}

/// Something of every kind that books sum up.
async fn furnish(scene: &Scene) -> s3o_model::ids::BucketId {
    let bucket = scene.bucket("audit").await;
    scene.put(bucket, "a", 5).await;
    scene.put(bucket, "a", 6).await;
    scene.staged(bucket, "b", 7).await;
    bucket
}

/// Books in order are all looked at, and show no drift.
pub async fn books_in_order_show_no_drift(scene: &Scene) {
    furnish(scene).await;
    scene.attach("cloud", Some(9)).await;
    let all = scene.catalog.audit_books().await.expect("an audit");
    let sum = |pick: fn(&Booked) -> (i64, i64)| all.iter().map(|booked| pick(booked).1).sum::<i64>();
    assert_eq!((sum(|b| b.used), sum(|b| b.orphan), sum(|b| b.reserved)), (6, 5, 7));
    assert!(all.iter().any(|booked| booked.backend.as_str() == "cloud"));
    assert_eq!(drifted(scene).await, []);
}

/// What is wrong is put right, in either direction, and only that.
pub async fn a_drift_is_repaired_as_a_difference(scene: &Scene) {
    const BREAK: &str = "UPDATE backend_quotas SET used_bytes = used_bytes + 100, orphan_bytes = 0, \
         reserved_bytes = reserved_bytes + 1 WHERE backend_name = 'disk'";
    furnish(scene).await;
    scene.change(BREAK, vec![]).await;
    let found = drifted(scene).await;
    assert!(!found.is_empty());
    for booked in &found {
        assert!(scene.catalog.repair_books(booked).await.expect("a repair"));
    }
    assert_eq!((scene.booked().await, drifted(scene).await), ((6, 5, 7), vec![]));
}

/// Two audits that found the same drift apply it once.
pub async fn a_drift_is_applied_once(scene: &Scene) {
    furnish(scene).await;
    scene.change("UPDATE backend_quotas SET used_bytes = used_bytes + 3 WHERE stripe = 0", vec![]).await;
    let (ours, theirs) = (drifted(scene).await, drifted(scene).await);
    assert!(scene.catalog.repair_books(&ours[0]).await.expect("a repair"));
    assert!(!scene.catalog.repair_books(&theirs[0]).await.expect("a repair"));
    assert_eq!(scene.booked().await, (6, 5, 7));
}

/// What others book between the look and the repair stays booked.
pub async fn what_happens_meanwhile_is_not_lost(scene: &Scene) {
    let bucket = furnish(scene).await;
    scene.change("UPDATE backend_quotas SET used_bytes = used_bytes + 50 WHERE stripe = 0", vec![]).await;
    let found = drifted(scene).await;
    let writers = (0..20).map(|number| {
        let scene = scene.clone();
        async move {
            let name = format!("w{number}");
            scene.put(bucket, &name, 3).await;
            if number % 2 == 0 {
                scene.delete(bucket, &name).await;
            }
        }
    });
    let (ours, repairs) = (scene.clone(), found.clone());
    let repairing = tokio::task::spawn(async move {
        for booked in &repairs {
            ours.catalog.repair_books(booked).await.expect("a repair");
        }
    });
    at_once(writers.collect()).await;
    repairing.await.expect("repaired");
    assert_eq!((scene.booked().await, drifted(scene).await), ((6 + 30, 5 + 30, 7), vec![]));
}

/// Counts are compared in pages that follow each other to the end.
pub async fn counts_are_compared_page_by_page(scene: &Scene) {
    let bucket = scene.bucket("pages").await;
    for number in 0..5 {
        scene.put(bucket, &format!("k{number}"), 1).await;
    }
    scene.change("UPDATE contents SET ref_count = 2", vec![]).await;
    let (mut after, mut seen, mut wrong) = (None, vec![], 0);
    loop {
        let page = scene.catalog.audit_counts(after, 2).await.expect("a page");
        seen.push(page.seen);
        wrong += page.miscounted.len();
        scene.recount(&page.miscounted).await;
        if page.seen < 2 {
            break;
        }
        after = page.last;
    }
    assert_eq!((seen, wrong), (vec![2, 2, 1], 5));
    assert_eq!(scene.catalog.audit_counts(None, 9).await.expect("a page").miscounted, []);
}

/// A count that is too low or too high becomes what the rows say, whatever refers.
pub async fn a_wrong_count_is_put_right(scene: &Scene) {
    let bucket = scene.bucket("wrong").await;
    let low = scene.put(bucket, "a", 5).await;
    scene.copy((low, 5), bucket, "b").await.expect("copied");
    let upload = scene.upload(bucket, "c").await;
    let part = scene.part_of(upload, 1, (low, 5), crate::PartSource::Range { offset: 0 });
    crate::Uploads::commit_part(&scene.catalog, part).await.expect("committed");
    let high = scene.put(bucket, "d", 5).await;
    scene.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![low]).await;
    scene.change("UPDATE contents SET ref_count = 7 WHERE id = $1", params![high]).await;
    let page = scene.catalog.audit_counts(None, 9).await.expect("a page");
    assert_eq!((page.miscounted.len(), page.unreferenced.len()), (2, 0));
    let mut put_right = scene.recount(&page.miscounted).await;
    put_right.sort_by_key(|recounted| recounted.from);
    let expected = [Recounted { content: low, from: 0, to: 3 }, Recounted { content: high, from: 7, to: 1 }];
    assert_eq!(put_right, expected);
}

/// What is right stays as it is, and is not told of.
pub async fn a_recount_changes_nothing_that_is_right(scene: &Scene) {
    let bucket = scene.bucket("right").await;
    let content = scene.put(bucket, "a", 5).await;
    assert_eq!(scene.recount(&[content, scene.content()]).await, []);
    assert_eq!(scene.condemn_unreferenced(&[content]).await, []);
}

/// Whatever its count says, condemned content stays condemned.
pub async fn condemned_content_does_not_come_back(scene: &Scene) {
    let bucket = scene.bucket("gone").await;
    let content = scene.put(bucket, "a", 5).await;
    assert!(scene.delete(bucket, "a").await);
    scene.change("UPDATE contents SET ref_count = 4 WHERE id = $1", params![content]).await;
    let page = scene.catalog.audit_counts(None, 9).await.expect("a page");
    assert_eq!(page.miscounted, [content]);
    scene.recount(&page.miscounted).await;
    let page = scene.catalog.audit_counts(None, 9).await.expect("a page");
    assert_eq!((page.miscounted, page.unreferenced), (vec![], vec![]));
    assert_eq!(scene.standing(content).await, Standing::Condemned);
    assert_eq!((scene.condemn_unreferenced(&[content]).await, scene.queued().await.len()), (vec![], 1));
}

/// What was counted too high when its last reference went is first recounted, then condemned: its
/// bytes become cleanups and move in the books.
pub async fn what_nothing_refers_to_is_condemned(scene: &Scene) {
    let bucket = scene.bucket("left").await;
    let content = scene.put(bucket, "a", 5).await;
    scene.change("UPDATE contents SET ref_count = 2 WHERE id = $1", params![content]).await;
    assert!(scene.delete(bucket, "a").await);
    assert_eq!(scene.standing(content).await, Standing::Live(1), "nothing will ever delete it");
    assert_eq!(scene.condemn_unreferenced(&[content]).await, [], "its count says no");
    let page = scene.catalog.audit_counts(None, 9).await.expect("a page");
    assert_eq!((page.miscounted.clone(), page.unreferenced), (vec![content], vec![]));
    scene.recount(&page.miscounted).await;
    let page = scene.catalog.audit_counts(None, 9).await.expect("a page");
    assert_eq!((page.miscounted, page.unreferenced.clone()), (vec![], vec![content]));
    let condemned = scene.condemn_unreferenced(&page.unreferenced).await;
    let (disk, key, size) = condemned[0].place.clone().expect("its bytes");
    assert_eq!((disk.as_str(), size, scene.queued().await), ("disk", 5, vec![key]));
    assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Condemned, (0, 5, 0)));
    assert_eq!(scene.condemn_unreferenced(&[content]).await, [], "once");
}

/// Rows that refer keep content, whatever its count says.
pub async fn what_something_refers_to_is_not_condemned(scene: &Scene) {
    let bucket = scene.bucket("used").await;
    let content = scene.put(bucket, "a", 5).await;
    scene.change("UPDATE contents SET ref_count = 0 WHERE id = $1", params![content]).await;
    assert_eq!(scene.condemn_unreferenced(&[content]).await, []);
    assert_eq!(scene.recount(&[content]).await.len(), 1);
    assert_eq!(scene.standing(content).await, Standing::Live(1));
}

/// Recounts while others copy and delete: every count is right in the end, and nothing is lost.
pub async fn a_recount_meets_copies_and_deletes(scene: &Scene) {
    let bucket = scene.bucket("busy").await;
    let content = scene.put(bucket, "a", 5).await;
    let recounter = scene.clone();
    let recounting = tokio::task::spawn(async move {
        for _ in 0..30 {
            recounter.change("UPDATE contents SET ref_count = ref_count + 1 WHERE id = $1", params![content]).await;
            recounter.recount(&[content]).await;
            recounter.condemn_unreferenced(&[content]).await;
        }
    });
    let users = (0..10).map(|number| {
        let scene = scene.clone();
        async move {
            let name = format!("c{number}");
            for _ in 0..5 {
                scene.copy((content, 5), bucket, &name).await.expect("copied");
                assert!(scene.delete(bucket, &name).await);
            }
        }
    });
    at_once(users.collect()).await;
    recounting.await.expect("recounted");
    assert_eq!(scene.standing(content).await, Standing::Live(1));
}

/// A count that is not the one seen any more is not repaired: the difference belongs to the one that was seen.
pub async fn a_count_that_changed_is_left_alone(scene: &Scene) {
    let bucket = scene.bucket("changed").await;
    let content = scene.put(bucket, "a", 5).await;
    scene.change("UPDATE contents SET ref_count = 3", vec![]).await;
    let seen = scene.catalog.confirm_suspects(&[content]).await.expect("confirmed");
    scene.copy((content, 5), bucket, "b").await.expect("copied");
    assert_eq!(scene.catalog.recount(&seen).await.expect("a unit"), []);
    assert_eq!(scene.standing(content).await, Standing::Live(4));
    assert_eq!(scene.recount(&[content]).await, [Recounted { content, from: 4, to: 2 }]);
}

/// An audit with too many suspects leaves one finding, which goes with the next audit that has fewer.
pub async fn many_suspects_leave_a_finding(scene: &Scene) {
    const FINDINGS: &str = "SELECT count(*) FROM findings WHERE kind = 'miscounted'";
    for suspects in [1001, 1002] {
        scene.catalog.note_suspects(suspects).await.expect("noted");
        assert_eq!(scene.number(FINDINGS).await, 1);
    }
    scene.catalog.note_suspects(0).await.expect("noted");
    assert_eq!(scene.number(FINDINGS).await, 0);
}
