//! Facts about the workers' runs.

use std::collections::BTreeMap;
use std::time::Duration;

use s3o_model::clock::Timestamp;

use super::scene::Scene;
use crate::{RunRow, Runs, WorkerState};

/// A run of a second that went well and finished now.
fn run(scene: &Scene, worker: &str) -> RunRow {
    RunRow {
        run_id: scene.token().to_string(),
        worker: worker.to_owned(),
        instance: "here".to_owned(),
        started_at: Timestamp::from_millis(scene.now().millis() - 1000),
        finished_at: scene.now(),
        outcome: "ok".to_owned(),
        items: BTreeMap::from([("success".to_owned(), 3)]),
        error: None,
    }
}

/// Records a run and lets a millisecond pass, so that the next one sorts behind it.
async fn recorded(scene: &Scene, worker: &str) -> RunRow {
    let run = run(scene, worker);
    scene.catalog.record_run(&run).await.expect("recorded");
    scene.clock.advance(Duration::from_millis(1));
    run
}

async fn state(scene: &Scene, worker: &str) -> WorkerState {
    let states = scene.catalog.worker_states().await.expect("a look");
    states.into_iter().find(|state| state.worker == worker).expect("that worker")
}

async fn kept(scene: &Scene, worker: Option<&str>) -> Vec<RunRow> {
    scene.catalog.runs(worker, None, 10_000).await.expect("a look")
}

/// A worker is entered when it is first seen, and then left alone.
pub async fn a_worker_is_entered_once(scene: &Scene) {
    assert_eq!(scene.catalog.worker_states().await.expect("a look"), []);
    let seen_at = scene.now();
    scene.catalog.enter_workers(&["cleanup", "expiry"]).await.expect("entered");
    scene.clock.advance(Duration::from_mins(1));
    scene.catalog.enter_workers(&["cleanup", "sweep"]).await.expect("entered");
    let cleanup = WorkerState {
        worker: "cleanup".to_owned(),
        paused: false,
        seen_at,
        last_started_at: None,
        last_finished_at: None,
        last_success_at: None,
        read_at: scene.now(),
    };
    assert_eq!(state(scene, "cleanup").await, cleanup);
    assert_eq!(state(scene, "sweep").await.seen_at, scene.now());
}

/// Everything about a run reads back.
pub async fn a_run_reads_back(scene: &Scene) {
    let failed = RunRow { outcome: "error".to_owned(), error: Some("away".to_owned()), ..run(scene, "cleanup") };
    scene.catalog.record_run(&failed).await.expect("recorded");
    scene.catalog.record_run(&failed).await.expect("a second time is not an error");
    assert_eq!(kept(scene, None).await, [failed]);
}

/// Success is remembered through failures.
pub async fn a_recorded_run_changes_where_its_worker_stands(scene: &Scene) {
    let good = recorded(scene, "cleanup").await;
    let stands = state(scene, "cleanup").await;
    assert_eq!((stands.last_started_at, stands.last_success_at), (Some(good.started_at), Some(good.finished_at)));
    assert_eq!(stands.last_finished_at, Some(good.finished_at));
    scene.clock.advance(Duration::from_mins(1));
    let bad = RunRow { outcome: "panicked".to_owned(), ..run(scene, "cleanup") };
    scene.catalog.record_run(&bad).await.expect("recorded");
    let stands = state(scene, "cleanup").await;
    assert_eq!((stands.last_started_at, stands.last_success_at), (Some(bad.started_at), Some(good.finished_at)));
}

/// A run without anything to do is noted, not recorded.
pub async fn a_noted_run_leaves_no_row(scene: &Scene) {
    scene.catalog.note_run("cleanup", Duration::from_millis(5)).await.expect("noted");
    let stands = state(scene, "cleanup").await;
    let started_at = Timestamp::from_millis(scene.now().millis() - 5);
    assert_eq!((stands.last_started_at, stands.last_success_at), (Some(started_at), Some(scene.now())));
    assert_eq!(kept(scene, None).await, []);
}

/// A skipped run is recorded, and its worker stands where it stood.
pub async fn a_skipped_run_changes_nothing_else(scene: &Scene) {
    recorded(scene, "sweep").await;
    let before = state(scene, "sweep").await;
    let skipped = RunRow { outcome: "skipped".to_owned(), ..run(scene, "sweep") };
    scene.catalog.record_run(&skipped).await.expect("recorded");
    assert_eq!(state(scene, "sweep").await, before);
    assert_eq!(kept(scene, None).await.len(), 2);
}

/// A run that was frozen for a while and ends behind another one makes nothing due again.
pub async fn a_late_run_does_not_set_the_clock_back(scene: &Scene) {
    let good = recorded(scene, "sweep").await;
    scene.catalog.note_run("sweep", Duration::from_hours(1)).await.expect("noted");
    assert_eq!(state(scene, "sweep").await.last_started_at, Some(good.started_at));
}

/// A pause stands, whatever is recorded, until it ends.
pub async fn a_pause_stands_until_it_ends(scene: &Scene) {
    scene.catalog.set_paused("sweep", true).await.expect("paused");
    recorded(scene, "sweep").await;
    recorded(scene, "cleanup").await;
    assert!(state(scene, "sweep").await.paused);
    assert!(!state(scene, "cleanup").await.paused);
    scene.catalog.set_paused("sweep", false).await.expect("resumed");
    let stands = state(scene, "sweep").await;
    assert!(!stands.paused && stands.last_started_at.is_some());
}

/// The history is read newest first, page by page, of one worker or of all.
pub async fn runs_come_newest_first_in_pages(scene: &Scene) {
    let mut all = Vec::new();
    for number in 0..6 {
        all.insert(0, recorded(scene, if number % 2 == 0 { "cleanup" } else { "sweep" }).await);
    }
    let page = scene.catalog.runs(None, None, 4).await.expect("a page");
    assert_eq!(page, all[..4]);
    assert_eq!(scene.catalog.runs(None, Some(&page[3].run_id), 4).await.expect("a page"), all[4..]);
    let sweeps: Vec<RunRow> = all.iter().filter(|run| run.worker == "sweep").cloned().collect();
    assert_eq!(kept(scene, Some("sweep")).await, sweeps);
    let rest = scene.catalog.runs(Some("sweep"), Some(&sweeps[0].run_id), 1).await.expect("a page");
    assert_eq!(rest, sweeps[1..2]);
}

/// Runs go when their time is over, whosever they are.
pub async fn old_runs_are_forgotten(scene: &Scene) {
    let keep = Duration::from_hours(1);
    recorded(scene, "cleanup").await;
    recorded(scene, "sweep").await;
    scene.clock.advance(keep);
    let young = recorded(scene, "sweep").await;
    assert_eq!(scene.catalog.forget_runs("cleanup", keep, 100).await.expect("forgotten"), 2);
    assert_eq!(scene.catalog.forget_runs("cleanup", keep, 100).await.expect("forgotten"), 0);
    assert_eq!(kept(scene, None).await, [young]);
}

/// A busy worker's history does not grow, and takes nothing from the others'.
pub async fn each_worker_keeps_its_newest_runs(scene: &Scene) {
    let other = recorded(scene, "sweep").await;
    let mut newest = Vec::new();
    for _ in 0..5 {
        newest.insert(0, recorded(scene, "cleanup").await);
    }
    let keep = Duration::from_hours(1);
    assert_eq!(scene.catalog.forget_runs("cleanup", keep, 5).await.expect("forgotten"), 0);
    assert_eq!(scene.catalog.forget_runs("cleanup", keep, 2).await.expect("forgotten"), 3);
    assert_eq!(kept(scene, Some("cleanup")).await, newest[..2]);
    assert_eq!(kept(scene, Some("sweep")).await, [other]);
}
