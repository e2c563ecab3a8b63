//! Tests of the history of worker runs.

use std::collections::BTreeMap;
use std::time::Duration;

use s3o_model::clock::Timestamp;

use super::fixture::Fixture;
use crate::{RunRow, WorkerState};

/// A successful run of one second that finished now.
fn run(fixture: &Fixture, worker: &str) -> RunRow {
    RunRow {
        run_id: fixture.token().to_string(),
        worker: worker.to_owned(),
        instance: "here".to_owned(),
        started_at: Timestamp::from_millis(fixture.now().millis() - 1000),
        finished_at: fixture.now(),
        outcome: "ok".to_owned(),
        items: BTreeMap::from([("success".to_owned(), 3)]),
        error: None,
    }
}

/// Records a run and advances the clock by a millisecond, so that the next run is ordered after it.
async fn recorded(fixture: &Fixture, worker: &str) -> RunRow {
    let run = run(fixture, worker);
    fixture.catalog.record_run(&run).await.expect("recorded");
    fixture.clock.advance(Duration::from_millis(1));
    run
}

async fn state(fixture: &Fixture, worker: &str) -> WorkerState {
    let states = fixture.catalog.worker_states().await.expect("a query");
    states.into_iter().find(|state| state.worker == worker).expect("that worker")
}

async fn kept(fixture: &Fixture, worker: Option<&str>) -> Vec<RunRow> {
    fixture.catalog.runs(worker, None, 10_000).await.expect("a query")
}

/// A later `insert_workers` does not change `seen_at`.
pub async fn worker_row_is_created_once(fixture: &Fixture) {
    assert_eq!(fixture.catalog.worker_states().await.expect("a query"), []);
    let seen_at = fixture.now();
    fixture.catalog.insert_workers(&["cleanup", "expiry"]).await.expect("entered");
    fixture.clock.advance(Duration::from_mins(1));
    fixture.catalog.insert_workers(&["cleanup", "sweep"]).await.expect("entered");
    let cleanup = WorkerState {
        worker: "cleanup".to_owned(),
        paused: false,
        seen_at,
        last_started_at: None,
        last_finished_at: None,
        last_success_at: None,
        read_at: fixture.now(),
    };
    assert_eq!(state(fixture, "cleanup").await, cleanup);
    assert_eq!(state(fixture, "sweep").await.seen_at, fixture.now());
}

/// Recording it again has no effect.
pub async fn run_reads_back_all_columns(fixture: &Fixture) {
    let failed = RunRow { outcome: "error".to_owned(), error: Some("away".to_owned()), ..run(fixture, "cleanup") };
    fixture.catalog.record_run(&failed).await.expect("recorded");
    fixture.catalog.record_run(&failed).await.expect("a second time is not an error");
    assert_eq!(kept(fixture, None).await, [failed]);
}

/// A failed run leaves `last_success_at` unchanged.
pub async fn recorded_run_updates_its_worker(fixture: &Fixture) {
    let good = recorded(fixture, "cleanup").await;
    let worker = state(fixture, "cleanup").await;
    assert_eq!((worker.last_started_at, worker.last_success_at), (Some(good.started_at), Some(good.finished_at)));
    assert_eq!(worker.last_finished_at, Some(good.finished_at));
    fixture.clock.advance(Duration::from_mins(1));
    let bad = RunRow { outcome: "panicked".to_owned(), ..run(fixture, "cleanup") };
    fixture.catalog.record_run(&bad).await.expect("recorded");
    let worker = state(fixture, "cleanup").await;
    assert_eq!((worker.last_started_at, worker.last_success_at), (Some(bad.started_at), Some(good.finished_at)));
}

/// It updates the state of its worker. Runs that found nothing to do are noted, not recorded.
pub async fn noted_run_creates_no_row(fixture: &Fixture) {
    fixture.catalog.note_run("cleanup", Duration::from_millis(5)).await.expect("noted");
    let worker = state(fixture, "cleanup").await;
    let started_at = Timestamp::from_millis(fixture.now().millis() - 5);
    assert_eq!((worker.last_started_at, worker.last_success_at), (Some(started_at), Some(fixture.now())));
    assert_eq!(kept(fixture, None).await, []);
}

/// Its row is stored.
pub async fn skipped_run_does_not_update_its_worker(fixture: &Fixture) {
    recorded(fixture, "sweep").await;
    let before = state(fixture, "sweep").await;
    let skipped = RunRow { outcome: "skipped".to_owned(), ..run(fixture, "sweep") };
    fixture.catalog.record_run(&skipped).await.expect("recorded");
    assert_eq!(state(fixture, "sweep").await, before);
    assert_eq!(kept(fixture, None).await.len(), 2);
}

/// Otherwise a run that ends after a younger one would make the worker due again.
pub async fn late_run_does_not_move_last_started_back(fixture: &Fixture) {
    let good = recorded(fixture, "sweep").await;
    fixture.catalog.note_run("sweep", Duration::from_hours(1)).await.expect("noted");
    assert_eq!(state(fixture, "sweep").await.last_started_at, Some(good.started_at));
}

/// Recorded runs do not end it.
pub async fn pause_lasts_until_resumed(fixture: &Fixture) {
    fixture.catalog.set_paused("sweep", true).await.expect("paused");
    recorded(fixture, "sweep").await;
    recorded(fixture, "cleanup").await;
    assert!(state(fixture, "sweep").await.paused);
    assert!(!state(fixture, "cleanup").await.paused);
    fixture.catalog.set_paused("sweep", false).await.expect("resumed");
    let worker = state(fixture, "sweep").await;
    assert!(!worker.paused && worker.last_started_at.is_some());
}

/// Of one worker or of all.
pub async fn runs_are_listed_newest_first_in_pages(fixture: &Fixture) {
    let mut all = Vec::new();
    for number in 0..6 {
        all.insert(0, recorded(fixture, if number % 2 == 0 { "cleanup" } else { "sweep" }).await);
    }
    let page = fixture.catalog.runs(None, None, 4).await.expect("a page");
    assert_eq!(page, all[..4]);
    assert_eq!(fixture.catalog.runs(None, Some(&page[3].run_id), 4).await.expect("a page"), all[4..]);
    let sweeps: Vec<RunRow> = all.iter().filter(|run| run.worker == "sweep").cloned().collect();
    assert_eq!(kept(fixture, Some("sweep")).await, sweeps);
    let rest = fixture.catalog.runs(Some("sweep"), Some(&sweeps[0].run_id), 1).await.expect("a page");
    assert_eq!(rest, sweeps[1..2]);
}

/// `forget_runs` of one worker applies the retention to all of them.
pub async fn old_runs_of_all_workers_are_deleted(fixture: &Fixture) {
    let keep = Duration::from_hours(1);
    recorded(fixture, "cleanup").await;
    recorded(fixture, "sweep").await;
    fixture.clock.advance(keep);
    let young = recorded(fixture, "sweep").await;
    assert_eq!(fixture.catalog.forget_runs("cleanup", keep, 100).await.expect("forgotten"), 2);
    assert_eq!(fixture.catalog.forget_runs("cleanup", keep, 100).await.expect("forgotten"), 0);
    assert_eq!(kept(fixture, None).await, [young]);
}

/// The limit on rows applies only to the worker that calls `forget_runs`.
pub async fn each_worker_keeps_its_newest_runs(fixture: &Fixture) {
    let other = recorded(fixture, "sweep").await;
    let mut newest = Vec::new();
    for _ in 0..5 {
        newest.insert(0, recorded(fixture, "cleanup").await);
    }
    let keep = Duration::from_hours(1);
    assert_eq!(fixture.catalog.forget_runs("cleanup", keep, 5).await.expect("forgotten"), 0);
    assert_eq!(fixture.catalog.forget_runs("cleanup", keep, 2).await.expect("forgotten"), 3);
    assert_eq!(kept(fixture, Some("cleanup")).await, newest[..2]);
    assert_eq!(kept(fixture, Some("sweep")).await, [other]);
}
