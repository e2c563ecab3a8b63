//! The audit log on a real file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use s3o_model::clock::{SystemClock, Timestamp};
use s3o_workers::{Event, RunObserver as _, RunOutcome, RunReport};
use serde_json::{Value, json};

use super::{Audit, AuditFilter, Cause, rfc3339};

fn open(path: &Path) -> Audit {
    Audit::open(path, Arc::new(SystemClock)).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn line_has_time_event_request_id_and_actor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/audit.jsonl");
    let audit = open(&path);
    audit.record("s3.PutObject", Cause::Request("ID"), "app", &json!({"bucket": "b", "status": 200}));
    audit.record("config.reloaded", Cause::Program, "program", &json!({}));
    audit.flush();
    let found = lines(&path);
    assert_eq!(found[0]["event"], "s3.PutObject");
    assert_eq!(found[0]["request_id"], "ID");
    assert_eq!(found[0]["actor"], "app");
    assert_eq!(found[0]["status"], 200);
    assert!(found[0]["time"].as_str().unwrap().ends_with('Z'), "{found:?}");
    assert!(found[0].get("run_id").is_none() && found[1].get("request_id").is_none());
}

#[test]
fn times_sort_as_text() {
    let text = |millis| rfc3339(Timestamp::from_millis(millis));
    assert_eq!(text(1_767_225_600_000), "2026-01-01T00:00:00.000Z");
    assert_eq!(text(1_767_225_600_110), "2026-01-01T00:00:00.110Z");
}

#[tokio::test]
async fn runs_that_changed_nothing_are_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let audit = open(&path);
    let run = RunReport {
        worker: "cleanup",
        run_id: "r".into(),
        outcome: RunOutcome::Ok,
        items: BTreeMap::new(),
        started_at: "2026-01-01T00:00:00Z".into(),
        finished_at: "2026-01-01T00:00:01Z".into(),
        error: None,
        holder: None,
        reason: None,
    };
    audit.observed(&run).await;
    audit.observed(&RunReport { outcome: RunOutcome::Skipped, ..run.clone() }).await;
    audit.observed(&RunReport { items: BTreeMap::from([("success", 2)]), ..run.clone() }).await;
    audit.observed(&RunReport { outcome: RunOutcome::Error, error: Some("away".into()), ..run }).await;
    let found = lines(&path);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0]["items"]["success"], 2);
    assert_eq!((&found[1]["run_id"], &found[1]["error"]), (&json!("r"), &json!("away")));
}

#[tokio::test]
async fn worker_events_are_written_before_the_run_continues() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let audit = open(&path);
    for tick in 1..=20 {
        let events = (0..50).map(|_| Event::new("expiry.deleted")).collect();
        audit.happened("expiry", "r", events).await;
        assert_eq!(lines(&path).len(), tick * 50);
    }
}

#[test]
fn close_writes_the_lines_of_all_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let audit = Arc::new(open(&path));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let audit = Arc::clone(&audit);
            std::thread::spawn(move || {
                for n in 0..1000 {
                    audit.record("test", Cause::Program, "test", &json!({"n": thread * 1000 + n}));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    audit.close();
    let mut found: Vec<_> = lines(&path).iter().map(|line| line["n"].as_u64().unwrap()).collect();
    found.sort_unstable();
    assert!(found.into_iter().eq(0..4000));
    assert_eq!(audit.dropped.get(), 0);
}

#[test]
fn lines_after_close_count_as_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let audit = open(&folder.path().join("audit.jsonl"));
    audit.close();
    audit.record("test", Cause::Program, "test", &json!({}));
    assert_eq!(audit.dropped.get(), 1);
}

#[test]
fn lines_count_as_dropped_when_the_disk_is_full() {
    let audit = open(Path::new("/dev/full"));
    audit.record("test", Cause::Program, "test", &json!({}));
    audit.flush();
    assert_eq!(audit.dropped.get(), 1);
}

#[test]
fn reopen_writes_to_a_new_file_after_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("audit.jsonl"), folder.path().join("audit.1"));
    let audit = open(&path);
    audit.record("before", Cause::Program, "test", &json!({}));
    std::fs::rename(&path, &moved).unwrap();
    audit.reopen().unwrap();
    audit.record("after", Cause::Program, "test", &json!({}));
    let latest = audit.latest(&AuditFilter::newest(10)).unwrap();
    assert_eq!(latest.len(), 1, "{latest:?}");
    assert_eq!(latest[0]["event"], "after");
    assert_eq!(lines(&moved)[0]["event"], "before");
}

#[test]
fn line_after_a_truncated_one_is_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    std::fs::write(&path, "{\"event\": \"cut").unwrap();
    let audit = open(&path);
    audit.record("whole", Cause::Program, "test", &json!({}));
    let latest = audit.latest(&AuditFilter::newest(10)).unwrap();
    assert_eq!(latest.len(), 1);
    assert_eq!(latest[0]["event"], "whole");
}
