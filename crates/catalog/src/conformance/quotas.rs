//! Tests of the limits of backends.

use s3o_model::conditions::WriteCondition;

use super::fixture::{Fixture, at_once, backend};
use super::refused;
use crate::{Late, Verdict};

/// Used, orphan and reserved bytes all count.
pub async fn limit_is_exact_to_the_byte(fixture: &Fixture) {
    let bucket = fixture.bucket("byte").await;
    fixture.attach("disk", Some(10)).await;
    fixture.put(bucket, "used", 3).await;
    let orphan = fixture.staged(bucket, "orphan", 2).await;
    fixture.catalog.drop_write(orphan.write, Late::No).await.expect("dropped");
    fixture.staged(bucket, "reserved", 4).await;
    refused(fixture.try_stage(&fixture.intent(bucket, "a", 2)).await, Verdict::NoSpace);
    assert_eq!(fixture.quota_usage("disk").await.available_bytes(), Some(1));
    fixture.staged(bucket, "a", 1).await;
    refused(fixture.try_stage(&fixture.intent(bucket, "b", 1)).await, Verdict::NoSpace);
    fixture.staged(bucket, "empty", 0).await;
    assert_eq!(fixture.usage().await, (3, 2, 5));
}

/// A delete frees capacity when cleanup is done, not when it is queued.
pub async fn queued_bytes_count_until_deleted(fixture: &Fixture) {
    let bucket = fixture.bucket("doomed").await;
    fixture.attach("disk", Some(10)).await;
    fixture.put(bucket, "a", 10).await;
    assert!(fixture.delete(bucket, "a").await);
    refused(fixture.try_stage(&fixture.intent(bucket, "b", 1)).await, Verdict::NoSpace);
    fixture.clean_up().await;
    fixture.put(bucket, "b", 10).await;
}

/// A limit below the present usage refuses new intents; those that have reserved their bytes commit.
pub async fn limit_can_be_changed_and_removed(fixture: &Fixture) {
    let bucket = fixture.bucket("limit").await;
    let disk = fixture.attach("disk", Some(10)).await;
    let intent = fixture.staged(bucket, "a", 10).await;
    fixture.catalog.set_limit(&disk, Some(5)).await.expect("lowered");
    refused(fixture.try_stage(&fixture.intent(bucket, "b", 1)).await, Verdict::NoSpace);
    fixture.commit(&intent, WriteCondition::None).await.expect("its bytes were reserved before");
    assert_eq!(fixture.quota_usage("disk").await.available_bytes(), Some(0));
    fixture.catalog.set_limit(&disk, None).await.expect("lifted");
    fixture.put(bucket, "b", 1 << 50).await;
    assert_eq!(fixture.quota_usage("disk").await.limit_bytes, None);
}

/// Even an intent of 0 bytes gets `NoSpace`.
pub async fn backend_without_quota_rows_refuses_intents(fixture: &Fixture) {
    let bucket = fixture.bucket("quota-usage").await;
    fixture.catalog.known_backend(&backend("fresh")).await.expect("entered");
    let intent = s3o_model::intent::Intent { backend: backend("fresh"), ..fixture.intent(bucket, "a", 0) };
    refused(fixture.try_stage(&intent).await, Verdict::NoSpace);
}

/// A write that fits into the whole limit succeeds, however the stripes share it. The shares always add up to the
/// limit.
pub async fn limit_is_redistributed_between_stripes(fixture: &Fixture) {
    let bucket = fixture.bucket("shares").await;
    let disk = fixture.attach("disk", Some(1_000)).await;
    let sum = "SELECT CAST(sum(share_bytes) AS BIGINT) FROM backend_quotas WHERE backend_name = 'disk'";
    let over = "SELECT count(*) FROM backend_quotas WHERE used_bytes + orphan_bytes + reserved_bytes > share_bytes";
    for (number, size) in [600, 3, 300, 96, 1].into_iter().enumerate() {
        fixture.put(bucket, &number.to_string(), size).await;
        assert_eq!((fixture.number(sum).await, fixture.number(over).await), (1_000, 0));
    }
    refused(fixture.try_stage(&fixture.intent(bucket, "b", 1)).await, Verdict::NoSpace);
    assert_eq!(fixture.quota_usage("disk").await.limit_bytes, Some(1_000));
    fixture.catalog.set_limit(&disk, Some(77)).await.expect("lowered");
    assert_eq!((fixture.quota_usage("disk").await.limit_bytes, fixture.number(sum).await), (Some(77), 77));
    fixture.catalog.set_limit(&disk, Some(1_500)).await.expect("raised");
    fixture.put(bucket, "b", 500).await;
    assert_eq!((fixture.quota_usage("disk").await.available_bytes(), fixture.number(over).await), (Some(0), 0));
}

/// 64 intents compete. The limit is never exceeded, and no capacity that fits one more is left over.
pub async fn limit_holds_against_concurrent_intents(fixture: &Fixture) {
    const LIMIT: u64 = 1_000;
    let bucket = fixture.bucket("many").await;
    fixture.attach("disk", Some(LIMIT)).await;
    for round in 0..5 {
        let stagers = (0..64).map(|number| {
            let fixture = fixture.clone();
            async move {
                let intent = fixture.intent(bucket, &format!("r{round}-{number}"), 31);
                match fixture.try_stage(&intent).await {
                    Ok(_) => Some(intent),
                    Err(error) => {
                        assert_eq!(error.verdict(), Some(Verdict::NoSpace), "{error}");
                        None
                    }
                }
            }
        });
        let staged: Vec<_> = at_once(stagers.collect()).await.into_iter().flatten().collect();
        assert_eq!(staged.len() as u64, LIMIT / 31);
        assert_eq!(fixture.usage().await.2, LIMIT / 31 * 31);
        for intent in staged {
            fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped");
        }
        fixture.clean_up().await;
    }
}
