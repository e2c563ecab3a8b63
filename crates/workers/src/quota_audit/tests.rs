//! Facts about the audit.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use s3o_catalog::conformance::books;
use s3o_catalog::conformance::scene::Scene;
use s3o_catalog::params;

use super::{DriftGauge, QuotaAudit};
use crate::testing::{counted, scene, told};
use crate::{Report, Worker as _};

fn audit(scene: &Scene, registry: &mut Registry) -> QuotaAudit {
    QuotaAudit::new(Arc::new(scene.catalog.clone()), DriftGauge::register(registry, std::iter::empty()), Arc::default())
}

/// Ticks until nothing more waits; how often is returned, too.
async fn run(audit: &QuotaAudit) -> (Report, usize) {
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

fn shown(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("text");
    text
}

#[tokio::test]
async fn a_drift_is_shown_repaired_and_told() {
    let (scene, mut registry) = (scene(), Registry::default());
    let bucket = scene.bucket("drift").await;
    scene.put(bucket, "a", 5).await;
    let audit = audit(&scene, &mut registry);
    assert_eq!(run(&audit).await, (Report::default(), 1), "all is well");
    assert!(shown(&registry).contains("s3o_quota_drift_bytes{backend=\"disk\"} 0\n"));
    scene.change("UPDATE backend_quotas SET used_bytes = used_bytes + 10, orphan_bytes = 3", vec![]).await;
    let (report, _) = run(&audit).await;
    assert_eq!((counted(&report), told(&report)), (vec![("repaired", 2)], vec!["quota_audit.repaired"; 2]));
    let event = serde_json::to_value(&report.events[0]).expect("serialises");
    let expected = serde_json::json!({"backend": "disk", "counter": "used_bytes", "stripe": 0,
        "from": 15, "to": 5, "delta": -10});
    assert_eq!(event, expected);
    assert!(shown(&registry).contains("s3o_quota_drift_bytes{backend=\"disk\"} 13\n"));
    assert_eq!(run(&audit).await, (Report::default(), 1));
    assert!(shown(&registry).contains("s3o_quota_drift_bytes{backend=\"disk\"} 0\n"));
    books::check(&scene).await;
}

#[tokio::test]
async fn counts_are_looked_at_page_by_page() {
    let (scene, mut registry) = (scene(), Registry::default());
    let bucket = scene.bucket("pages").await;
    for number in 0..7 {
        scene.put(bucket, &format!("k{number}"), 1).await;
    }
    scene.change("UPDATE contents SET ref_count = 3", vec![]).await;
    let audit = QuotaAudit { page: 2, ..audit(&scene, &mut registry) };
    let (report, ticks) = run(&audit).await;
    assert_eq!((counted(&report), ticks), (vec![("recounted", 7)], 4), "once, behind the last page");
    assert_eq!(report.events[0].details["delta"], serde_json::json!(-2));
    books::check(&scene).await;
}

#[tokio::test]
async fn what_nothing_refers_to_goes_with_the_second_audit() {
    let (scene, mut registry) = (scene(), Registry::default());
    let bucket = scene.bucket("left").await;
    let content = scene.put(bucket, "a", 5).await;
    scene.change("UPDATE contents SET ref_count = 2 WHERE id = $1", params![content]).await;
    assert!(scene.delete(bucket, "a").await);
    let audit = audit(&scene, &mut registry);
    assert_eq!(counted(&run(&audit).await.0), [("recounted", 1)]);
    assert_eq!(scene.queued().await.len(), 0);
    let (report, _) = run(&audit).await;
    assert_eq!((counted(&report), scene.queued().await.len()), (vec![("condemned", 1)], 1));
    let bytes = report.events[0].bytes.as_ref().expect("where they lie");
    assert_eq!((bytes.backend.as_str(), bytes.size_bytes), ("disk", 5));
    assert_eq!(run(&audit).await.0, Report::default());
    books::check(&scene).await;
}

#[tokio::test]
async fn too_many_suspects_are_a_finding_and_no_repair() {
    let (scene, mut registry) = (scene(), Registry::default());
    let bucket = scene.bucket("many").await;
    for number in 0..3 {
        scene.put(bucket, &format!("k{number}"), 1).await;
    }
    scene.change("UPDATE contents SET ref_count = 3", vec![]).await;
    let few = QuotaAudit { suspects_max: 2, ..audit(&scene, &mut registry) };
    let (report, _) = run(&few).await;
    assert_eq!(counted(&report), [("suspects", 3)]);
    assert_eq!(scene.number("SELECT min(ref_count) FROM contents").await, 3, "nothing is repaired");
    assert_eq!(scene.number("SELECT count(*) FROM findings").await, 1);
    let enough = QuotaAudit { suspects_max: 3, ..audit(&scene, &mut registry) };
    assert_eq!(counted(&run(&enough).await.0), [("recounted", 3)]);
    assert_eq!(scene.number("SELECT count(*) FROM findings").await, 0);
    books::check(&scene).await;
}

#[tokio::test]
async fn nothing_is_repaired_before_the_check_has_passed() {
    let (scene, mut registry) = (scene(), Registry::default());
    let bucket = scene.bucket("early").await;
    scene.put(bucket, "a", 5).await;
    scene.change("UPDATE contents SET ref_count = 2", vec![]).await;
    let audit = audit(&scene, &mut registry);
    scene.catalog.condition().begin_check();
    assert_eq!(counted(&run(&audit).await.0), [("unconfirmed", 1)]);
    scene.catalog.condition().doubt("rows");
    assert_eq!(counted(&run(&audit).await.0), [("unconfirmed", 1)]);
    assert!(scene.catalog.condition().accept_doubt());
    assert_eq!(counted(&run(&audit).await.0), [("recounted", 1)]);
    books::check(&scene).await;
}
