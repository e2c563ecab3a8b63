//! Tests of intervals, restarts and backoff.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::harness::{Act, HOUR, Harness, MINUTE, SECOND, ScriptedWorker, sleep};
use crate::{Kind, RunOutcome, Scheduled};

#[tokio::test(start_paused = true)]
async fn instances_that_start_together_do_not_tick_together() {
    let mut first = Vec::new();
    for seed in 0..20 {
        let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", []));
        let started = Instant::now();
        let serving = harness.serve_with(vec![worker.on(Kind::Shared, HOUR)], seed);
        sleep(HOUR / 2 + SECOND).await;
        first.push(worker.ticks()[0] - started);
        serving.stop().await;
    }
    assert!(first.iter().all(|delay| *delay <= HOUR / 2));
    assert!(
        first.iter().any(|delay| *delay < HOUR / 8) && first.iter().any(|delay| *delay > HOUR * 3 / 8),
        "{first:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn restart_does_not_shorten_or_double_a_long_interval() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("sweep", []));
    let workers = || vec![worker.on(Kind::Locked, HOUR)];
    let serving = harness.serve(workers());
    sleep(40 * MINUTE).await;
    assert_eq!(worker.ticks().len(), 1);
    for seed in 0..5 {
        serve_for(&harness, workers(), seed, MINUTE).await;
    }
    serving.stop().await;
    let serving = harness.serve(workers());
    sleep(HOUR).await;
    serving.stop().await;
    let gaps = worker.gaps();
    assert!(gaps.len() == 1 && gaps[0] + 2 * SECOND > HOUR && gaps[0] < HOUR + MINUTE, "{gaps:?}");
}

async fn serve_for(harness: &Harness, workers: Vec<Scheduled>, seed: u64, time: Duration) {
    let serving = harness.serve_with(workers, seed);
    sleep(time).await;
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn frequent_restarts_do_not_starve_a_long_interval() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("sweep", []));
    for seed in 0..18 {
        serve_for(&harness, vec![worker.on(Kind::Locked, 2 * HOUR)], seed, 10 * MINUTE).await;
    }
    assert_eq!(worker.ticks().len(), 2, "one within the first hour, one two hours later");
}

#[tokio::test(start_paused = true)]
async fn overdue_worker_runs_within_a_minute_of_a_start() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("sweep", []));
    serve_for(&harness, vec![worker.on(Kind::Locked, HOUR)], 1, 31 * MINUTE).await;
    sleep(5 * HOUR).await;
    serve_for(&harness, vec![worker.on(Kind::Locked, HOUR)], 1, MINUTE).await;
    assert_eq!(worker.ticks().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_instances_run_a_locked_worker_once_an_interval() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("sweep", []));
    let one = harness.serve_with(vec![worker.on(Kind::Locked, HOUR)], 1);
    let two = harness.serve_with(vec![worker.on(Kind::Locked, HOUR)], 2);
    sleep(10 * HOUR + HOUR / 2).await;
    one.stop().await;
    two.stop().await;
    assert!((10..=11).contains(&worker.ticks().len()), "{:?}", worker.gaps());
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_and_notifications_do_not_shorten_the_delay() {
    let bell = Arc::new(Notify::new());
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", [Act::Fail; 6]));
    let serving = harness.serve(vec![worker.with_bell(Kind::Shared, MINUTE, &bell)]);
    for _ in 0..60 {
        sleep(MINUTE).await;
        bell.notify_one();
    }
    let gaps = worker.gaps();
    for (gap, intervals) in gaps.iter().zip([2, 4, 8, 10, 10, 10]) {
        let most = MINUTE * intervals;
        assert!(*gap >= most / 2 && *gap <= most + SECOND, "{gaps:?}");
    }
    assert!(gaps[6..].iter().all(|gap| *gap <= MINUTE + SECOND), "the interval is back after a success: {gaps:?}");
    assert_eq!(harness.history().await.len(), 6, "only failures are recorded");
    assert_eq!(harness.observer.runs.lock().len(), 6);
    serving.stop().await;
}

/// The interval of a locked worker counts from its last run on any instance: a run that did nothing must not keep
/// another instance from the work.
#[tokio::test(start_paused = true)]
async fn run_that_yields_is_skipped_and_leaves_the_work_to_another_instance() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("replicator", [Act::Yield; 200]));
    let serving = harness.serve(vec![worker.on(Kind::Locked, HOUR)]);
    sleep(HOUR / 2 + SECOND).await;
    let view = serving.runner.list().await.expect("a list").remove(0);
    assert!(view.last_success_at.is_none() && !worker.ticks().is_empty());
    let last = view.last_run.expect("a run");
    assert_eq!((last.outcome, last.reason.as_deref()), (RunOutcome::Skipped, Some("scripted")));
    let other = ScriptedWorker::new("replicator", [Act::Did(1)]);
    let elsewhere = harness.serve_with(vec![other.on(Kind::Locked, HOUR)], 9);
    sleep(HOUR / 2 + SECOND).await;
    assert_eq!(harness.history().await.len(), 1, "only the run that did something is recorded");
    serving.stop().await;
    elsewhere.stop().await;
}

#[tokio::test(start_paused = true)]
async fn disabled_worker_runs_on_request_only() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("rebalancer", [Act::Did(1), Act::Did(1)]));
    let mut scheduled = worker.on(Kind::Locked, MINUTE);
    scheduled.schedule.enabled = false;
    let serving = harness.serve(vec![scheduled]);
    sleep(10 * MINUTE).await;
    assert_eq!(worker.ticks().len(), 0);
    let view = serving.runner.list().await.expect("a list").remove(0);
    assert!(!view.enabled && view.next_due_at.is_none());
    let report = serving.runner.run_now("rebalancer").await.expect("that worker");
    assert_eq!((report.outcome, worker.ticks().len()), (RunOutcome::Ok, 1));
    serving.runner.replace(vec![worker.on(Kind::Locked, MINUTE)]);
    sleep(2 * MINUTE).await;
    assert!(worker.ticks().len() > 1, "a reload enabled it");
    serving.stop().await;
}
