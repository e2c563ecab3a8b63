//! Tests of the runner.

mod clock_hold;
mod harness;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use s3o_catalog::{Lock, Locked};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{Event, Kind, RunOutcome};
use harness::{Act, HOUR, Harness, MINUTE, SECOND, ScriptedWorker, sleep};

const TENTH: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn failed_tick_still_reports_what_it_did_before() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", [Act::FailHalfWay]));
    let serving = harness.serve(vec![worker.on(Kind::Shared, MINUTE)]);
    sleep(MINUTE).await;
    serving.stop().await;
    let runs = harness.observer.runs.lock().clone();
    assert_eq!((runs[0].outcome, runs[0].items["success"]), (RunOutcome::Error, 1));
    let events = harness.observer.events.lock().clone();
    assert_eq!(events, [(runs[0].run_id.clone(), Event::new("scripted.happened"))]);
}

#[tokio::test(start_paused = true)]
async fn panic_ends_the_run_but_not_the_worker() {
    let (harness, worker) =
        (Harness::new(), ScriptedWorker::new("expiry", [Act::Full(SECOND), Act::Panic, Act::Did(1)]));
    let serving = harness.serve(vec![worker.on(Kind::Shared, MINUTE)]);
    sleep(10 * MINUTE).await;
    let metrics = serving.metrics();
    serving.stop().await;
    let history = harness.history().await;
    let outcomes: Vec<&str> = history.iter().rev().map(|run| run.outcome.as_str()).collect();
    assert_eq!(outcomes, ["panicked", "ok"]);
    assert_eq!(history[1].items["success"], 1, "items done before the panic are counted");
    assert!(history[1].error.as_ref().is_some_and(|error| error.contains("scripted")));
    assert!(metrics.contains("s3o_worker_runs_total{worker=\"expiry\",outcome=\"panicked\"} 1"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn observer_panic_does_not_end_the_loop() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", [Act::Did(1), Act::Did(1)]));
    *harness.observer.panics.lock() = true;
    let serving = harness.serve(vec![worker.on(Kind::Shared, MINUTE)]);
    sleep(10 * MINUTE).await;
    serving.stop().await;
    assert!(worker.ticks().len() > 5);
    assert_eq!(harness.observer.runs.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pause_survives_a_restart_and_run_now_ignores_it() {
    let bell = Arc::new(Notify::new());
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", []));
    let workers = || vec![worker.with_bell(Kind::Shared, MINUTE, &bell)];
    let serving = harness.serve(workers());
    assert!(serving.runner.pause("expiry").await.expect("paused"));
    assert!(!serving.runner.pause("unknown").await.expect("an answer"));
    sleep(10 * MINUTE).await;
    serving.stop().await;
    let serving = harness.serve(workers());
    bell.notify_one();
    sleep(10 * MINUTE).await;
    assert_eq!(worker.ticks(), []);
    let view = serving.runner.list().await.expect("a list").remove(0);
    assert!(view.paused && view.next_due_at.is_none());
    let report = serving.runner.run_now("expiry").await.expect("that worker");
    assert_eq!((report.outcome, worker.ticks().len()), (RunOutcome::Ok, 1));
    assert_eq!(harness.history().await.len(), 1, "manual runs are always recorded");
    assert!(serving.runner.resume("expiry").await.expect("resumed"));
    sleep(SECOND).await;
    assert_eq!(worker.ticks().len(), 3, "one run on resume, one for the notification during the pause");
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pause_ends_a_scheduled_run_between_batches_but_not_a_manual_one() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", [Act::Full(5 * SECOND); 8]));
    let serving = harness.serve(vec![worker.on(Kind::Shared, MINUTE)]);
    while worker.ticks().len() < 2 {
        sleep(SECOND).await;
    }
    // Another instance pauses the worker.
    harness.runner(vec![worker.on(Kind::Shared, MINUTE)], 9).pause("expiry").await.expect("paused");
    sleep(10 * MINUTE).await;
    assert_eq!(worker.ticks().len(), 2, "the batch in progress was the last");
    serving.runner.run_now("expiry").await.expect("that worker");
    assert_eq!(worker.ticks().len(), 9, "the manual run did the remaining batches");
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn run_skipped_for_a_held_lock_is_visible() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("sweep", []));
    let Locked::Held(lock) = harness.locks.try_lock("sweep").await.expect("an answer") else { panic!("held") };
    let serving = harness.serve(vec![worker.on(Kind::Locked, HOUR)]);
    sleep(HOUR).await;
    assert_eq!(worker.ticks(), []);
    assert!(serving.metrics().contains("s3o_worker_runs_total{worker=\"sweep\",outcome=\"skipped\"}"));
    assert!(harness.history().await.is_empty(), "skipped scheduled runs are not recorded");
    let report = serving.runner.run_now("sweep").await.expect("that worker");
    assert_eq!((report.outcome, report.holder.as_deref()), (RunOutcome::Skipped, Some("other")));
    assert_eq!(harness.history().await[0].error.as_deref(), Some("held by other"));
    drop(lock);
    sleep(MINUTE).await;
    assert_eq!(worker.ticks().len(), 1, "it runs within a minute of the release");
    assert!(serving.runner.run_now("unknown").await.is_none());
    serving.stop().await;
}

/// Grants locks that are already lost.
struct LostLocks;

#[async_trait::async_trait]
impl s3o_catalog::Locks for LostLocks {
    async fn try_lock(&self, _worker: &str) -> Result<Locked, s3o_catalog::Error> {
        Ok(Locked::Held(Lock::new(Arc::new(true.into()), || ())))
    }
}

#[tokio::test(start_paused = true)]
async fn run_stops_when_its_lock_is_lost() {
    let (mut harness, worker) = (Harness::new(), ScriptedWorker::new("sweep", []));
    harness.locks = Arc::new(LostLocks);
    let report = harness.runner(vec![worker.on(Kind::Locked, HOUR)], 1).run_now("sweep").await.expect("that worker");
    assert_eq!((report.outcome, report.error.as_deref()), (RunOutcome::Error, Some("the lock was lost")));
    assert_eq!(worker.ticks(), []);
}

#[tokio::test(start_paused = true)]
async fn run_now_answers_although_the_observer_panics() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", [Act::Did(1)]));
    *harness.observer.panics.lock() = true;
    let report = harness.runner(vec![worker.on(Kind::Shared, HOUR)], 1).run_now("expiry").await.expect("that worker");
    assert_eq!(report.outcome, RunOutcome::Panicked);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_runs_up_to_the_drain_timeout() {
    let (harness, long) = (Harness::new(), ScriptedWorker::new("long", [Act::Takes(5 * MINUTE)]));
    let short = ScriptedWorker::new("short", [Act::Takes(20 * SECOND)]);
    let serving = harness.serve(vec![long.on(Kind::Shared, HOUR), short.on(Kind::Shared, HOUR)]);
    let manual = [("long", serving.runner.clone()), ("short", serving.runner.clone())]
        .map(|(name, runner)| tokio::task::spawn(async move { runner.run_now(name).await }));
    sleep(SECOND).await;
    let began = Instant::now();
    serving.stop().await;
    assert_eq!(began.elapsed().as_secs(), 30);
    let history = harness.history().await;
    assert_eq!(history.iter().map(|run| run.worker.as_str()).collect::<Vec<_>>(), ["short"]);
    drop(manual);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_scheduled_runs() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", [Act::Takes(MINUTE), Act::Takes(MINUTE)]));
    let serving = harness.serve(vec![worker.on(Kind::Shared, 10 * SECOND)]);
    sleep(10 * SECOND).await;
    sleep(45 * SECOND).await;
    serving.stop().await;
    assert_eq!(harness.history().await.len(), 1, "the run finished its tick and was recorded");
}

#[tokio::test(start_paused = true)]
async fn tick_longer_than_its_deadline_is_cancelled() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", [Act::Takes(5 * HOUR)]));
    let runner = harness.runner(vec![worker.on(Kind::Shared, MINUTE)], 1);
    let report = runner.run_now("expiry").await.expect("that worker");
    assert_eq!(report.outcome, RunOutcome::Error);
    assert!(report.error.as_ref().is_some_and(|error| error.contains("longer than")), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn full_batches_run_until_the_time_budget_and_continue_soon_after() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", [Act::Full(25 * SECOND); 5]));
    let serving = harness.serve(vec![worker.on(Kind::Shared, 24 * HOUR)]);
    let report = serving.runner.run_now("expiry").await.expect("that worker");
    assert_eq!((report.items["success"], worker.ticks().len()), (3, 3), "the budget of a minute is used up");
    sleep(12 * HOUR).await;
    serving.stop().await;
    let gaps = worker.gaps();
    assert!(gaps[3..].iter().all(|gap| *gap < 26 * SECOND), "{gaps:?}");
    assert_eq!(gaps.len(), 5, "two more full batches and a short one");
}

#[tokio::test(start_paused = true)]
async fn workers_run_while_requests_use_up_the_budget() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", []));
    let _requests: Vec<_> = (0..20).map(|_| harness.budget.request()).collect();
    let serving = harness.serve(vec![worker.on(Kind::Shared, MINUTE)]);
    sleep(10 * MINUTE).await;
    assert!(worker.ticks().len() >= 9);
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn yielding_worker_pauses_between_batches_for_requests() {
    for (name, pause) in [("expiry", 6 * TENTH), ("watchdog", Duration::ZERO)] {
        let (harness, worker) = (Harness::new(), ScriptedWorker::new(name, [Act::Full(TENTH); 3]));
        let serving = harness.serve(vec![worker.on(Kind::Shared, HOUR)]);
        let budget = Arc::clone(&harness.budget);
        let requests = tokio::spawn(async move {
            loop {
                drop(budget.request());
                sleep(TENTH / 20).await;
            }
        });
        serving.runner.run_now(name).await.expect("that worker");
        let gaps = worker.gaps();
        assert!(
            gaps.len() == 3 && gaps.iter().all(|gap| *gap >= TENTH + pause && *gap < 2 * TENTH + pause),
            "{gaps:?}"
        );
        requests.abort();
        serving.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn idle_tick_reads_one_row_and_writes_none() {
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("expiry", []));
    let serving = harness.serve(vec![worker.on(Kind::Shared, 10 * SECOND)]);
    sleep(MINUTE).await;
    let (before, ticks) = (harness.catalog.effort(), worker.ticks().len());
    sleep(10 * MINUTE).await;
    let (after, ticks) = (harness.catalog.effort(), worker.ticks().len() - ticks);
    assert!((59..=61).contains(&ticks), "{ticks}");
    assert_eq!(after.rows_read - before.rows_read, ticks as u64, "each tick reads the worker's one state row");
    assert!(after.units - before.units <= 10, "idle runs are recorded at most once a minute");
    assert!(after.units > before.units);
    assert_eq!(harness.history().await, []);
    let state = harness.state("expiry").await;
    assert!(state.read_at.since(state.last_success_at.expect("a success")) <= MINUTE + SECOND);
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn notification_starts_a_run_and_metrics_count_its_items() {
    let bell = Arc::new(Notify::new());
    let (harness, worker) = (Harness::new(), ScriptedWorker::new("cleanup", [Act::Takes(SECOND)]));
    let serving = harness.serve(vec![worker.with_bell(Kind::Shared, 24 * HOUR, &bell)]);
    sleep(SECOND).await;
    bell.notify_one();
    sleep(2 * SECOND).await;
    let metrics = serving.metrics();
    for line in [
        "s3o_worker_items_total{worker=\"cleanup\",outcome=\"success\"} 1",
        "s3o_stale_settlements_total{worker=\"cleanup\"} 1",
        "s3o_cleanup_queue_processed_total{status=\"success\"} 1",
        "s3o_cleanup_queue_stale_claims_recovered_total{backend=\"disk\"} 1",
        "s3o_worker_last_success_timestamp_seconds{worker=\"cleanup\"} 1700000002",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("status=\"stale\"") && !metrics.contains("status=\"recovered\""));
    let view = serde_json::to_value(serving.runner.list().await.expect("a list")).expect("JSON");
    assert_eq!(view[0]["last_run"]["items"]["stale"], 1);
    assert_eq!((&view[0]["kind"], &view[0]["interval_seconds"]), (&"shared".into(), &86_400.0.into()));
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replaced_worker_follows_its_new_schedule() {
    let (harness, old, new) =
        (Harness::new(), ScriptedWorker::new("sweep", []), ScriptedWorker::new("sweep", [Act::Did(1)]));
    let serving = harness.serve(vec![old.on(Kind::Locked, 300 * HOUR)]);
    sleep(200 * HOUR).await;
    assert_eq!(old.ticks().len(), 1);
    serving
        .runner
        .replace(vec![new.on(Kind::Locked, MINUTE), ScriptedWorker::new("unknown", []).on(Kind::Locked, MINUTE)]);
    sleep(10 * MINUTE).await;
    serving.stop().await;
    assert_eq!(old.ticks().len(), 1, "the replaced worker does not tick");
    assert!((9..=11).contains(&new.ticks().len()), "{:?}", new.gaps());
}
