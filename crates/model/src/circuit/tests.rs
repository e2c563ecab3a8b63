//! Tests of the transitions of a circuit.

use super::{CallResult, Circuit, CircuitSettings, CircuitState, Permit};
use std::time::Duration;

const SETTINGS: CircuitSettings = CircuitSettings {
    failure_threshold: 3,
    open_timeout: Duration::from_secs(30),
    probe_timeout: Duration::from_mins(2),
};
const START: Duration = Duration::from_hours(1);

fn call(circuit: &mut Circuit, result: CallResult, now: Duration) -> bool {
    let Some(permit) = circuit.admit(now) else { return false };
    circuit.record(permit, result, now, &SETTINGS, 1.0);
    true
}

/// A good probe after which one call must succeed.
fn await_trial(circuit: &mut Circuit, now: Duration) {
    circuit.record_probe(true, false, now, &SETTINGS, 1.0);
}

fn opened() -> Circuit {
    let mut circuit = Circuit::default();
    for _ in 0..3 {
        assert!(call(&mut circuit, CallResult::Failure, START));
    }
    assert_eq!(circuit.state(), CircuitState::Open);
    circuit
}

#[test]
fn consecutive_failures_open_the_circuit() {
    let mut circuit = Circuit::default();
    let results = [CallResult::Failure, CallResult::Failure, CallResult::Neutral, CallResult::Success];
    for result in results.into_iter().chain([CallResult::Failure, CallResult::Failure]) {
        assert!(call(&mut circuit, result, START));
    }
    assert_eq!(circuit.state(), CircuitState::Closed, "a success was between the failures");
    assert!(call(&mut circuit, CallResult::Failure, START));
    assert_eq!(circuit.state(), CircuitState::Open);
    assert!(circuit.admit(START).is_none());
}

#[test]
fn one_trial_decides_after_the_open_timeout() {
    let mut circuit = opened();
    await_trial(&mut circuit, START + SETTINGS.open_timeout / 2);
    assert_eq!(circuit.state(), CircuitState::Open, "too early");
    let due = START + SETTINGS.open_timeout;
    await_trial(&mut circuit, due);
    let trial = circuit.admit(due).expect("a trial");
    assert!(circuit.admit(due).is_none(), "one trial at a time");
    let stale = Permit { trial: None };
    circuit.record(stale, CallResult::Success, due, &SETTINGS, 1.0);
    assert_eq!(circuit.state(), CircuitState::HalfOpen, "a call from before does not decide");
    circuit.record(trial, CallResult::Success, due, &SETTINGS, 1.0);
    assert_eq!((circuit.state(), circuit.since()), (CircuitState::Closed, due));
}

#[test]
fn failed_trials_double_the_time_up_to_five_minutes() {
    let (mut circuit, mut now) = (opened(), START);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let wait = circuit.next_deadline(now, &SETTINGS).expect("open");
        waits.push(wait.as_secs());
        now += wait;
        await_trial(&mut circuit, now);
        assert!(call(&mut circuit, CallResult::Failure, now));
    }
    assert_eq!(waits, [30, 60, 120, 240, 300, 300]);
    assert_eq!(circuit.since(), START, "it was not closed meanwhile");
}

#[test]
fn a_circuit_that_stayed_closed_starts_again_with_the_shortest_time() {
    for (closed_for, wait) in [(SETTINGS.open_timeout, 30), (SETTINGS.open_timeout / 2, 60)] {
        let mut circuit = opened();
        let now = START + SETTINGS.open_timeout;
        await_trial(&mut circuit, now);
        assert!(call(&mut circuit, CallResult::Success, now));
        for _ in 0..3 {
            call(&mut circuit, CallResult::Failure, now + closed_for);
        }
        assert_eq!(circuit.next_deadline(now + closed_for, &SETTINGS), Some(Duration::from_secs(wait)));
    }
}

#[test]
fn a_trial_without_a_result_is_repeated_or_expires() {
    let mut circuit = opened();
    let due = START + SETTINGS.open_timeout;
    await_trial(&mut circuit, due);
    assert!(call(&mut circuit, CallResult::Neutral, due));
    assert!(circuit.admit(due).is_some(), "the next call is the trial");
    circuit.expire_trial(due, &SETTINGS, 1.0);
    assert_eq!(circuit.state(), CircuitState::HalfOpen);
    circuit.expire_trial(due + SETTINGS.probe_timeout, &SETTINGS, 1.0);
    assert_eq!(circuit.state(), CircuitState::Open);
}

#[test]
fn a_trial_that_succeeds_after_it_expired_closes_the_circuit() {
    let mut circuit = opened();
    let due = START + SETTINGS.open_timeout;
    await_trial(&mut circuit, due);
    let trial = circuit.admit(due).expect("a trial");
    let late = due + SETTINGS.probe_timeout;
    circuit.expire_trial(late, &SETTINGS, 1.0);
    assert_eq!(circuit.state(), CircuitState::Open);
    circuit.record(trial, CallResult::Success, late, &SETTINGS, 1.0);
    assert_eq!(circuit.state(), CircuitState::Closed, "a large body may take longer than a trial");
}

#[test]
fn an_expired_trial_does_not_end_the_next_one() {
    let mut circuit = opened();
    let due = START + SETTINGS.open_timeout;
    await_trial(&mut circuit, due);
    let first = circuit.admit(due).expect("a trial");
    circuit.expire_trial(due + SETTINGS.probe_timeout, &SETTINGS, 1.0);
    let next = due + Duration::from_mins(10);
    await_trial(&mut circuit, next);
    circuit.admit(next).expect("the second trial");
    for result in [CallResult::Neutral, CallResult::Failure] {
        circuit.record(first, result, next, &SETTINGS, 1.0);
        assert_eq!(circuit.state(), CircuitState::HalfOpen);
        assert!(circuit.admit(next).is_none(), "the second trial is in progress");
    }
}

#[test]
fn a_good_probe_after_a_failed_one_does_not_wait_for_the_open_timeout() {
    for (failed, suffices, state) in
        [(false, true, CircuitState::Open), (true, true, CircuitState::Closed), (true, false, CircuitState::HalfOpen)]
    {
        let mut circuit = opened();
        if failed {
            circuit.record_probe(false, suffices, START, &SETTINGS, 1.0);
            assert_eq!(circuit.state(), CircuitState::Open);
        }
        circuit.record_probe(true, suffices, START, &SETTINGS, 1.0);
        assert_eq!(circuit.state(), state);
    }
}

#[test]
fn failed_probes_open_the_circuit_of_reads_only() {
    for (suffices, state) in [(true, CircuitState::Open), (false, CircuitState::Closed)] {
        let mut circuit = Circuit::default();
        for _ in 0..3 {
            circuit.record_probe(false, suffices, START, &SETTINGS, 1.0);
        }
        assert_eq!(circuit.state(), state);
    }
}
