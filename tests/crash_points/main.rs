//! Crash points: every call to the catalog and to a backend is one, in every operation and in every worker tick after
//! it. At each of them the process dies before or after the effect, an answer is lost, or the client disconnects; and
//! the next process dies at each point of the recovery. After each run the store holds exactly what was acknowledged.

mod runs;

use s3o_tests::call_points::CallFault;
use s3o_tests::database::BlockingDatabase;
use s3o_tests::scenarios::{Scenario, all};

use crate::runs::{FaultRun, disconnect, effect, effect_on, pair, single};

/// More points than any operation has.
const POINTS_MAX: usize = 10_000;
/// Calls with an effect of a multipart upload with two parts: each write has an intent, bytes and a commit.
const HEAVY_POINTS_MIN: usize = 12;

/// Injects a fault at each point in turn until a run has fewer points; returns their number.
fn each_point(mut inject: impl FnMut(usize) -> FaultRun) -> usize {
    (1..POINTS_MAX).take_while(|point| inject(*point) == FaultRun::Injected).count()
}

fn light() -> impl Iterator<Item = &'static Scenario> {
    all().filter(|scenario| !scenario.heavy)
}

/// One kind of fault at every point of the operation and of the ticks after it.
fn each_point_of_all(scenarios: impl Iterator<Item = &'static Scenario>, fault: CallFault) {
    let (mut points, mut runs) = (0, 0);
    for scenario in scenarios {
        let found = each_point(|point| single(scenario, point, fault));
        println!("{fault:?} in {}: {found} points", scenario.name);
        assert!(found > 3, "{} has no points", scenario.name);
        points += found;
        runs += found + 1;
    }
    println!("{fault:?}: {points} points, {runs} runs");
}

#[test]
fn crash_before_any_call_loses_nothing() {
    each_point_of_all(light(), CallFault::DieBefore);
}

#[test]
fn crash_after_any_call_loses_nothing() {
    each_point_of_all(light(), CallFault::DieAfter);
}

#[test]
fn lost_answer_to_any_call_loses_nothing() {
    each_point_of_all(light(), CallFault::LoseAnswer);
}

/// A crash between two effects leaves the same state as at either, so these runs cover every crash.
#[test]
fn crash_after_any_effect_of_large_transfers_loses_nothing() {
    let mut points = 0;
    for scenario in all().filter(|scenario| scenario.heavy) {
        for fault in [CallFault::DieAfter, CallFault::LoseAnswer] {
            let found = each_point(|point| effect(scenario, point, fault));
            println!("{fault:?} in {}: {found} points", scenario.name);
            assert!(found >= HEAVY_POINTS_MIN, "{} has only {found} points", scenario.name);
            points += found;
        }
    }
    println!("{points} points and runs");
}

/// On PostgreSQL, without the scenarios that transfer megabytes.
#[test]
fn crash_after_any_effect_on_postgresql_loses_nothing() {
    let (database, mut points) = (BlockingDatabase::fresh(), 0);
    for scenario in light() {
        for fault in [CallFault::DieAfter, CallFault::LoseAnswer] {
            let found = each_point(|point| effect_on(&database, scenario, point, fault));
            assert!(found > 1, "{} has no effects", scenario.name);
            points += found;
        }
    }
    println!("{points} points and runs");
}

#[test]
fn client_disconnect_at_any_step_loses_nothing() {
    let mut points = 0;
    for scenario in all() {
        let found = each_point(|point| disconnect(scenario, point));
        println!("{}: disconnected at each of {found} steps", scenario.name);
        assert!(found > 2, "{} has no steps", scenario.name);
        points += found;
    }
    println!("{points} points and runs");
}

#[test]
fn crash_during_recovery_loses_nothing() {
    let (mut firsts, mut runs) = (0, 0);
    for scenario in light() {
        let mut seconds = 0;
        let found = each_point(|first| {
            let mut outcome = FaultRun::Injected;
            seconds += each_point(|second| {
                let (injected, again) = pair(scenario, first, second);
                outcome = injected;
                runs += 1;
                again
            });
            outcome
        });
        println!("{}: {found} points and {seconds} pairs", scenario.name);
        firsts += found;
    }
    println!("{firsts} points, {runs} runs with pairs");
    assert!(runs > 500, "{runs} runs");
}
