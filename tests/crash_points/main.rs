//! Crash points: every call to the catalog and to a backend is one, in every operation and in every
//! tick behind it. At each of them the process dies, before or after the effect, or an answer is
//! lost, or the client hangs up; and it dies again at each point of the recovery. Each time, what
//! was acknowledged must be there in the end, and nothing else.

mod lives;

use s3o_tests::database::StillDatabase;
use s3o_tests::points::Blow;
use s3o_tests::scenarios::{Scenario, all};

use crate::lives::{Run, effect, effect_on, given_up, pair, single};

/// No operation has as many.
const POINTS_MAX: usize = 10_000;
/// A multipart upload of two parts has at least as many calls with an effect: each write has an intent, bytes and a commit.
const HEAVY_POINTS_MIN: usize = 12;

/// Strikes at each point in turn until the run comes to its end by itself; how many there were.
fn each_point(mut strike: impl FnMut(usize) -> Run) -> usize {
    (1..POINTS_MAX).take_while(|point| strike(*point) == Run::Struck).count()
}

fn light() -> impl Iterator<Item = &'static Scenario> {
    all().filter(|scenario| !scenario.heavy)
}

/// Every point of the operation and of the ticks behind it, struck in one way.
fn each_point_of_all(scenarios: impl Iterator<Item = &'static Scenario>, blow: Blow) {
    let (mut points, mut runs) = (0, 0);
    for scenario in scenarios {
        let found = each_point(|point| single(scenario, point, blow));
        println!("{blow:?} in {}: {found} points", scenario.name);
        assert!(found > 3, "{} has no points", scenario.name);
        points += found;
        runs += found + 1;
    }
    println!("{blow:?}: {points} points, {runs} runs");
}

#[test]
fn the_process_may_die_before_any_call() {
    each_point_of_all(light(), Blow::DieBefore);
}

#[test]
fn the_process_may_die_after_any_call() {
    each_point_of_all(light(), Blow::DieAfter);
}

#[test]
fn the_answer_to_any_call_may_be_lost() {
    each_point_of_all(light(), Blow::LoseAnswer);
}

/// Between two effects every crash leaves the same behind, so these are all crashes there are.
#[test]
fn any_effect_may_be_the_last_while_megabytes_move() {
    let mut points = 0;
    for scenario in all().filter(|scenario| scenario.heavy) {
        for blow in [Blow::DieAfter, Blow::LoseAnswer] {
            let found = each_point(|point| effect(scenario, point, blow));
            println!("{blow:?} in {}: {found} points", scenario.name);
            assert!(found >= HEAVY_POINTS_MIN, "{} has only {found} points", scenario.name);
            points += found;
        }
    }
    println!("{points} points and runs");
}

/// The same on PostgreSQL, without the scenarios that move megabytes.
#[test]
fn any_effect_may_be_the_last_on_postgresql() {
    let (database, mut points) = (StillDatabase::fresh(), 0);
    for scenario in light() {
        for blow in [Blow::DieAfter, Blow::LoseAnswer] {
            let found = each_point(|point| effect_on(&database, scenario, point, blow));
            assert!(found > 1, "{} has no effects", scenario.name);
            points += found;
        }
    }
    println!("{points} points and runs");
}

#[test]
fn a_client_may_hang_up_at_any_step() {
    let mut points = 0;
    for scenario in all() {
        let found = each_point(|point| given_up(scenario, point));
        println!("{}: given up at each of {found} steps", scenario.name);
        assert!(found > 2, "{} had no steps to be given up at", scenario.name);
        points += found;
    }
    println!("{points} points and runs");
}

#[test]
fn the_process_may_die_again_while_it_recovers() {
    let (mut firsts, mut runs) = (0, 0);
    for scenario in light() {
        let mut seconds = 0;
        let found = each_point(|first| {
            let mut outcome = Run::Struck;
            seconds += each_point(|second| {
                let (struck, again) = pair(scenario, first, second);
                outcome = struck;
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
