//! Tests of the audit.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use s3o_catalog::conformance::fixture::Fixture;
use s3o_catalog::conformance::quota_usage;
use s3o_catalog::params;

use super::{DriftGauge, QuotaAuditWorker};
use crate::testing::{counted, event_names, fixture};
use crate::{Report, Worker as _};

fn audit(fixture: &Fixture, registry: &mut Registry) -> QuotaAuditWorker {
    QuotaAuditWorker::new(
        Arc::new(fixture.catalog.clone()),
        DriftGauge::register(registry, std::iter::empty()),
        Arc::default(),
    )
}

/// Ticks until no more is waiting; also returns the number of ticks.
async fn run(audit: &QuotaAuditWorker) -> (Report, usize) {
    let mut run = Report::default();
    for ticks in 1..100 {
        let mut report = Report::default();
        audit.tick(&mut report).await.expect("a tick");
        run.absorb(report);
        if !run.more {
            return (run, ticks);
        }
    }
    panic!("it does not end");
}

fn encoded(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("text");
    text
}

#[tokio::test]
async fn drift_is_shown_repaired_and_audited() {
    let (fixture, mut registry) = (fixture(), Registry::default());
    let bucket = fixture.bucket("drift").await;
    fixture.put(bucket, "a", 5).await;
    let audit = audit(&fixture, &mut registry);
    assert_eq!(run(&audit).await, (Report::default(), 1), "no drift yet");
    assert!(encoded(&registry).contains("s3o_quota_drift_bytes{backend=\"disk\"} 0\n"));
    fixture.change("UPDATE backend_quotas SET used_bytes = used_bytes + 10, orphan_bytes = 3", vec![]).await;
    let (report, _) = run(&audit).await;
    assert_eq!((counted(&report), event_names(&report)), (vec![("repaired", 2)], vec!["quota_audit.repaired"; 2]));
    let event = serde_json::to_value(&report.events[0]).expect("serialises");
    let expected = serde_json::json!({"backend": "disk", "counter": "used_bytes", "stripe": 0,
        "from": 15, "to": 5, "delta": -10});
    assert_eq!(event, expected);
    assert!(encoded(&registry).contains("s3o_quota_drift_bytes{backend=\"disk\"} 13\n"));
    assert_eq!(run(&audit).await, (Report::default(), 1));
    assert!(encoded(&registry).contains("s3o_quota_drift_bytes{backend=\"disk\"} 0\n"));
    quota_usage::check(&fixture).await;
}

#[tokio::test]
async fn counts_are_checked_page_by_page() {
    let (fixture, mut registry) = (fixture(), Registry::default());
    let bucket = fixture.bucket("pages").await;
    for number in 0..7 {
        fixture.put(bucket, &format!("k{number}"), 1).await;
    }
    fixture.change("UPDATE contents SET ref_count = 3", vec![]).await;
    let audit = QuotaAuditWorker { page: 2, ..audit(&fixture, &mut registry) };
    let (report, ticks) = run(&audit).await;
    assert_eq!((counted(&report), ticks), (vec![("recounted", 7)], 4), "repaired once, after the last page");
    assert_eq!(report.events[0].details["delta"], serde_json::json!(-2));
    quota_usage::check(&fixture).await;
}

#[tokio::test]
async fn unreferenced_content_is_condemned_by_the_second_audit() {
    let (fixture, mut registry) = (fixture(), Registry::default());
    let bucket = fixture.bucket("left").await;
    let content = fixture.put(bucket, "a", 5).await;
    fixture.change("UPDATE contents SET ref_count = 2 WHERE id = $1", params![content]).await;
    assert!(fixture.delete(bucket, "a").await);
    let audit = audit(&fixture, &mut registry);
    assert_eq!(counted(&run(&audit).await.0), [("recounted", 1)]);
    assert_eq!(fixture.queued().await.len(), 0);
    let (report, _) = run(&audit).await;
    assert_eq!((counted(&report), fixture.queued().await.len()), (vec![("condemned", 1)], 1));
    let bytes = report.events[0].bytes.as_ref().expect("a location");
    assert_eq!((bytes.backend.as_str(), bytes.size_bytes), ("disk", 5));
    assert_eq!(run(&audit).await.0, Report::default());
    quota_usage::check(&fixture).await;
}

#[tokio::test]
async fn too_many_suspects_are_a_finding_and_are_not_repaired() {
    let (fixture, mut registry) = (fixture(), Registry::default());
    let bucket = fixture.bucket("many").await;
    for number in 0..3 {
        fixture.put(bucket, &format!("k{number}"), 1).await;
    }
    fixture.change("UPDATE contents SET ref_count = 3", vec![]).await;
    let few = QuotaAuditWorker { suspects_max: 2, ..audit(&fixture, &mut registry) };
    let (report, _) = run(&few).await;
    assert_eq!(counted(&report), [("suspects", 3)]);
    assert_eq!(fixture.number("SELECT min(ref_count) FROM contents").await, 3, "nothing is repaired");
    assert_eq!(fixture.number("SELECT count(*) FROM findings").await, 1);
    let enough = QuotaAuditWorker { suspects_max: 3, ..audit(&fixture, &mut registry) };
    assert_eq!(counted(&run(&enough).await.0), [("recounted", 3)]);
    assert_eq!(fixture.number("SELECT count(*) FROM findings").await, 0);
    quota_usage::check(&fixture).await;
}

#[tokio::test]
async fn nothing_is_repaired_before_the_integrity_check_passed() {
    let (fixture, mut registry) = (fixture(), Registry::default());
    let bucket = fixture.bucket("early").await;
    fixture.put(bucket, "a", 5).await;
    fixture.change("UPDATE contents SET ref_count = 2", vec![]).await;
    let audit = audit(&fixture, &mut registry);
    fixture.catalog.condition().begin_check();
    assert_eq!(counted(&run(&audit).await.0), [("unconfirmed", 1)]);
    fixture.catalog.condition().doubt("rows");
    assert_eq!(counted(&run(&audit).await.0), [("unconfirmed", 1)]);
    assert!(fixture.catalog.condition().accept_doubt());
    assert_eq!(counted(&run(&audit).await.0), [("recounted", 1)]);
    quota_usage::check(&fixture).await;
}
