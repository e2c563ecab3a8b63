//! Facts about the runner.

mod held;
mod house;

use std::sync::Arc;
use std::time::Duration;

use s3o_catalog::{Lock, Locked};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{Event, Kind, Outcome};
use house::{Act, HOUR, House, MINUTE, Probe, SECOND, sleep};

const TENTH: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn instances_that_start_together_do_not_tick_together() {
    let mut first = Vec::new();
    for seed in 0..20 {
        let (house, probe) = (House::new(), Probe::new("expiry", []));
        let started = Instant::now();
        let serving = house.serve_with(vec![probe.on(Kind::Shared, HOUR)], seed);
        sleep(HOUR / 2 + SECOND).await;
        first.push(probe.ticks()[0] - started);
        serving.stop().await;
    }
    assert!(first.iter().all(|rest| *rest <= HOUR / 2));
    assert!(first.iter().any(|rest| *rest < HOUR / 8) && first.iter().any(|rest| *rest > HOUR * 3 / 8), "{first:?}");
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_double_a_long_interval() {
    let (house, probe) = (House::new(), Probe::new("sweep", []));
    let workers = || vec![probe.on(Kind::Locked, HOUR)];
    let serving = house.serve(workers());
    sleep(40 * MINUTE).await;
    assert_eq!(probe.ticks().len(), 1);
    for seed in 0..5 {
        serving_for(&house, workers(), seed, MINUTE).await;
    }
    serving.stop().await;
    let serving = house.serve(workers());
    sleep(HOUR).await;
    serving.stop().await;
    let gaps = probe.gaps();
    assert!(gaps.len() == 1 && gaps[0] + 2 * SECOND > HOUR && gaps[0] < HOUR + MINUTE, "{gaps:?}");
}

async fn serving_for(house: &House, workers: Vec<crate::Scheduled>, seed: u64, time: Duration) {
    let serving = house.serve_with(workers, seed);
    sleep(time).await;
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn restarts_do_not_starve_a_long_interval() {
    let (house, probe) = (House::new(), Probe::new("sweep", []));
    for seed in 0..18 {
        serving_for(&house, vec![probe.on(Kind::Locked, 2 * HOUR)], seed, 10 * MINUTE).await;
    }
    assert_eq!(probe.ticks().len(), 2, "one within the first hour, one two hours later");
}

#[tokio::test(start_paused = true)]
async fn what_is_overdue_at_a_start_runs_soon() {
    let (house, probe) = (House::new(), Probe::new("sweep", []));
    serving_for(&house, vec![probe.on(Kind::Locked, HOUR)], 1, 31 * MINUTE).await;
    sleep(5 * HOUR).await;
    serving_for(&house, vec![probe.on(Kind::Locked, HOUR)], 1, MINUTE).await;
    assert_eq!(probe.ticks().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_instances_run_a_locked_worker_once_an_interval() {
    let (house, probe) = (House::new(), Probe::new("sweep", []));
    let one = house.serve_with(vec![probe.on(Kind::Locked, HOUR)], 1);
    let two = house.serve_with(vec![probe.on(Kind::Locked, HOUR)], 2);
    sleep(10 * HOUR + HOUR / 2).await;
    one.stop().await;
    two.stop().await;
    assert!((10..=11).contains(&probe.ticks().len()), "{:?}", probe.gaps());
}

#[tokio::test(start_paused = true)]
async fn failures_put_a_worker_off_further_and_further_and_the_bell_does_not_help() {
    let bell = Arc::new(Notify::new());
    let (house, probe) = (House::new(), Probe::new("expiry", [Act::Fail; 6]));
    let serving = house.serve(vec![probe.with_bell(Kind::Shared, MINUTE, &bell)]);
    for _ in 0..60 {
        sleep(MINUTE).await;
        bell.notify_one();
    }
    let gaps = probe.gaps();
    for (gap, intervals) in gaps.iter().zip([2, 4, 8, 10, 10, 10]) {
        let most = MINUTE * intervals;
        assert!(*gap >= most / 2 && *gap <= most + SECOND, "{gaps:?}");
    }
    assert!(gaps[6..].iter().all(|gap| *gap <= MINUTE + SECOND), "then it is back to normal: {gaps:?}");
    assert_eq!(house.history().await.len(), 6, "the failures");
    assert_eq!(house.ears.heard.lock().len(), 6);
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_done_before_a_failure_is_not_forgotten() {
    let (house, probe) = (House::new(), Probe::new("expiry", [Act::FailHalfWay]));
    let serving = house.serve(vec![probe.on(Kind::Shared, MINUTE)]);
    sleep(MINUTE).await;
    serving.stop().await;
    let heard = house.ears.heard.lock().clone();
    assert_eq!((heard[0].outcome, heard[0].items["success"]), (Outcome::Error, 1));
    let happened = house.ears.happened.lock().clone();
    assert_eq!(happened, [(heard[0].run_id.clone(), Event::new("scripted.happened"))]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_a_run_and_not_the_worker() {
    let (house, probe) = (House::new(), Probe::new("expiry", [Act::Full(SECOND), Act::Panic, Act::Did(1)]));
    let serving = house.serve(vec![probe.on(Kind::Shared, MINUTE)]);
    sleep(10 * MINUTE).await;
    let metrics = serving.metrics();
    serving.stop().await;
    let history = house.history().await;
    let outcomes: Vec<&str> = history.iter().rev().map(|run| run.outcome.as_str()).collect();
    assert_eq!(outcomes, ["panicked", "ok"]);
    assert_eq!(history[1].items["success"], 1, "what was done before the panic counts");
    assert!(history[1].error.as_ref().is_some_and(|error| error.contains("scripted")));
    assert!(metrics.contains("s3o_worker_runs_total{worker=\"expiry\",outcome=\"panicked\"} 1"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_an_observer_does_not_end_the_loop() {
    let (house, probe) = (House::new(), Probe::new("expiry", [Act::Did(1), Act::Did(1)]));
    *house.ears.panics.lock() = true;
    let serving = house.serve(vec![probe.on(Kind::Shared, MINUTE)]);
    sleep(10 * MINUTE).await;
    serving.stop().await;
    assert!(probe.ticks().len() > 5);
    assert_eq!(house.ears.heard.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_survives_a_restart_and_running_by_hand_works() {
    let bell = Arc::new(Notify::new());
    let (house, probe) = (House::new(), Probe::new("expiry", []));
    let workers = || vec![probe.with_bell(Kind::Shared, MINUTE, &bell)];
    let serving = house.serve(workers());
    assert!(serving.runner.pause("expiry").await.expect("paused"));
    assert!(!serving.runner.pause("nobody").await.expect("an answer"));
    sleep(10 * MINUTE).await;
    serving.stop().await;
    let serving = house.serve(workers());
    bell.notify_one();
    sleep(10 * MINUTE).await;
    assert_eq!(probe.ticks(), []);
    let view = serving.runner.list().await.expect("a list").remove(0);
    assert!(view.paused && view.next_due_at.is_none());
    let report = serving.runner.run_now("expiry").await.expect("that worker");
    assert_eq!((report.outcome, probe.ticks().len()), (Outcome::Ok, 1));
    assert_eq!(house.history().await.len(), 1, "it was asked for");
    assert!(serving.runner.resume("expiry").await.expect("resumed"));
    sleep(SECOND).await;
    assert_eq!(probe.ticks().len(), 3, "it goes on at once, and then hears the bell that rang meanwhile");
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_a_run_between_its_batches_but_not_one_by_hand() {
    let (house, probe) = (House::new(), Probe::new("expiry", [Act::Full(5 * SECOND); 8]));
    let serving = house.serve(vec![probe.on(Kind::Shared, MINUTE)]);
    while probe.ticks().len() < 2 {
        sleep(SECOND).await;
    }
    // As another instance would.
    house.runner(vec![probe.on(Kind::Shared, MINUTE)], 9).pause("expiry").await.expect("paused");
    sleep(10 * MINUTE).await;
    assert_eq!(probe.ticks().len(), 2, "the batch under way was the last");
    serving.runner.run_now("expiry").await.expect("that worker");
    assert_eq!(probe.ticks().len(), 9, "all that was left");
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_skipped_for_the_holder_of_the_lock_is_visible() {
    let (house, probe) = (House::new(), Probe::new("sweep", []));
    let Locked::Held(lock) = house.locks.try_lock("sweep").await.expect("an answer") else { panic!("held") };
    let serving = house.serve(vec![probe.on(Kind::Locked, HOUR)]);
    sleep(HOUR).await;
    assert_eq!(probe.ticks(), []);
    assert!(serving.metrics().contains("s3o_worker_runs_total{worker=\"sweep\",outcome=\"skipped\"}"));
    assert!(house.history().await.is_empty(), "nobody asked");
    let report = serving.runner.run_now("sweep").await.expect("that worker");
    assert_eq!((report.outcome, report.holder.as_deref()), (Outcome::Skipped, Some("other")));
    assert_eq!(house.history().await[0].error.as_deref(), Some("held by other"));
    drop(lock);
    sleep(MINUTE).await;
    assert_eq!(probe.ticks().len(), 1, "it is taken over within a minute");
    assert!(serving.runner.run_now("nobody").await.is_none());
    serving.stop().await;
}

/// Gives out locks that are lost from the beginning.
struct Lossy;

#[async_trait::async_trait]
impl s3o_catalog::Locks for Lossy {
    async fn try_lock(&self, _worker: &str) -> Result<Locked, s3o_catalog::Error> {
        Ok(Locked::Held(Lock::new(Arc::new(true.into()), || ())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_lock_is_lost_goes_no_further() {
    let (mut house, probe) = (House::new(), Probe::new("sweep", []));
    house.locks = Arc::new(Lossy);
    let report = house.runner(vec![probe.on(Kind::Locked, HOUR)], 1).run_now("sweep").await.expect("that worker");
    assert_eq!((report.outcome, report.error.as_deref()), (Outcome::Error, Some("the lock was lost")));
    assert_eq!(probe.ticks(), []);
}

#[tokio::test(start_paused = true)]
async fn a_run_by_hand_always_has_an_answer() {
    let (house, probe) = (House::new(), Probe::new("expiry", [Act::Did(1)]));
    *house.ears.panics.lock() = true;
    let report = house.runner(vec![probe.on(Kind::Shared, HOUR)], 1).run_now("expiry").await.expect("that worker");
    assert_eq!(report.outcome, Outcome::Panicked);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_runs_but_not_for_ever() {
    let (house, long) = (House::new(), Probe::new("long", [Act::Takes(5 * MINUTE)]));
    let short = Probe::new("short", [Act::Takes(20 * SECOND)]);
    let serving = house.serve(vec![long.on(Kind::Shared, HOUR), short.on(Kind::Shared, HOUR)]);
    let asked = [("long", serving.runner.clone()), ("short", serving.runner.clone())]
        .map(|(name, runner)| tokio::task::spawn(async move { runner.run_now(name).await }));
    sleep(SECOND).await;
    let began = Instant::now();
    serving.stop().await;
    assert_eq!(began.elapsed().as_secs(), 30);
    let history = house.history().await;
    assert_eq!(history.iter().map(|run| run.worker.as_str()).collect::<Vec<_>>(), ["short"]);
    drop(asked);
}

#[tokio::test(start_paused = true)]
async fn scheduled_runs_are_drained_too() {
    let (house, probe) = (House::new(), Probe::new("expiry", [Act::Takes(MINUTE), Act::Takes(MINUTE)]));
    let serving = house.serve(vec![probe.on(Kind::Shared, 10 * SECOND)]);
    sleep(10 * SECOND).await;
    sleep(45 * SECOND).await;
    serving.stop().await;
    assert_eq!(house.history().await.len(), 1, "it finished its tick and was recorded");
}

#[tokio::test(start_paused = true)]
async fn a_tick_that_hangs_is_given_up() {
    let (house, probe) = (House::new(), Probe::new("expiry", [Act::Takes(5 * HOUR)]));
    let runner = house.runner(vec![probe.on(Kind::Shared, MINUTE)], 1);
    let report = runner.run_now("expiry").await.expect("that worker");
    assert_eq!(report.outcome, Outcome::Error);
    assert!(report.error.as_ref().is_some_and(|error| error.contains("longer than")), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn full_batches_follow_each_other_within_the_budget_and_the_rest_follows_soon() {
    let (house, probe) = (House::new(), Probe::new("expiry", [Act::Full(25 * SECOND); 5]));
    let serving = house.serve(vec![probe.on(Kind::Shared, 24 * HOUR)]);
    let report = serving.runner.run_now("expiry").await.expect("that worker");
    assert_eq!((report.items["success"], probe.ticks().len()), (3, 3), "a minute is spent");
    sleep(12 * HOUR).await;
    serving.stop().await;
    let gaps = probe.gaps();
    assert!(gaps[3..].iter().all(|gap| *gap < 26 * SECOND), "{gaps:?}");
    assert_eq!(gaps.len(), 5, "two more full batches and a short one");
}

#[tokio::test(start_paused = true)]
async fn workers_go_on_while_requests_fill_the_process() {
    let (house, probe) = (House::new(), Probe::new("expiry", []));
    let _requests: Vec<_> = (0..20).map(|_| house.budget.request()).collect();
    let serving = house.serve(vec![probe.on(Kind::Shared, MINUTE)]);
    sleep(10 * MINUTE).await;
    assert!(probe.ticks().len() >= 9);
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_patient_backlog_rests_for_requests() {
    for (name, rest) in [("expiry", 6 * TENTH), ("watchdog", Duration::ZERO)] {
        let (house, probe) = (House::new(), Probe::new(name, [Act::Full(TENTH); 3]));
        let serving = house.serve(vec![probe.on(Kind::Shared, HOUR)]);
        let budget = Arc::clone(&house.budget);
        let asking = tokio::spawn(async move {
            loop {
                drop(budget.request());
                sleep(TENTH / 20).await;
            }
        });
        serving.runner.run_now(name).await.expect("that worker");
        let gaps = probe.gaps();
        assert!(gaps.len() == 3 && gaps.iter().all(|gap| *gap >= TENTH + rest && *gap < 2 * TENTH + rest), "{gaps:?}");
        asking.abort();
        serving.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_tick_is_one_look_and_no_row() {
    let (house, probe) = (House::new(), Probe::new("expiry", []));
    let serving = house.serve(vec![probe.on(Kind::Shared, 10 * SECOND)]);
    sleep(MINUTE).await;
    let (before, ticks) = (house.catalog.effort(), probe.ticks().len());
    sleep(10 * MINUTE).await;
    let (after, ticks) = (house.catalog.effort(), probe.ticks().len() - ticks);
    assert!((59..=61).contains(&ticks), "{ticks}");
    assert_eq!(after.rows_read - before.rows_read, ticks as u64, "each reads the one state there is");
    assert!(after.units - before.units <= 10, "where it stands is noted once a minute");
    assert!(after.units > before.units);
    assert_eq!(house.history().await, []);
    let seen = house.state("expiry").await;
    assert!(seen.read_at.since(seen.last_success_at.expect("a success")) <= MINUTE + SECOND);
    serving.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_bell_wakes_and_metrics_show_what_was_done() {
    let bell = Arc::new(Notify::new());
    let (house, probe) = (House::new(), Probe::new("cleanup", [Act::Takes(SECOND)]));
    let serving = house.serve(vec![probe.with_bell(Kind::Shared, 24 * HOUR, &bell)]);
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
async fn a_worker_that_is_set_up_anew_follows_its_new_schedule() {
    let (house, old, new) = (House::new(), Probe::new("sweep", []), Probe::new("sweep", [Act::Did(1)]));
    let serving = house.serve(vec![old.on(Kind::Locked, 300 * HOUR)]);
    sleep(200 * HOUR).await;
    assert_eq!(old.ticks().len(), 1);
    serving.runner.replace(vec![new.on(Kind::Locked, MINUTE), Probe::new("stranger", []).on(Kind::Locked, MINUTE)]);
    sleep(10 * MINUTE).await;
    serving.stop().await;
    assert_eq!(old.ticks().len(), 1, "it is not asked again");
    assert!((9..=11).contains(&new.ticks().len()), "{:?}", new.gaps());
}
