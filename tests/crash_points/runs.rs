//! One run: a process with an injected fault, maybe a second one that dies while it recovers, and a last one that
//! recovers without faults and is checked.

use std::cell::Cell;
use std::sync::Arc;

use s3o_catalog::Mode;
use s3o_tests::call_points::{CallFault, CallPoints};
use s3o_tests::database::BlockingDatabase;
use s3o_tests::environment::Environment;
use s3o_tests::harness::{Expected, Harness};
use s3o_tests::scenarios::{Scenario, either};
use tokio::runtime::Builder;

/// Whether the run had the point at which a fault was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultRun {
    Injected,
    /// The fault was planned after the last call.
    FewerPoints,
}

impl FaultRun {
    fn of(injected: bool) -> Self {
        if injected { Self::Injected } else { Self::FewerPoints }
    }
}

/// Runs one process in a runtime of its own: dropping the runtime ends every task where it stands, as a crash does.
fn run_process<T>(process: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().build().expect("build a runtime");
    runtime.block_on(process)
}

/// The answer that the client received; None if it received none.
type Acknowledged = Cell<Option<bool>>;

fn expected(scenario: &Scenario, acknowledged: &Acknowledged) -> Expected {
    if acknowledged.get() == Some(true) { (scenario.after)() } else { either(scenario) }
}

async fn prepared(scenario: &Scenario, environment: &Arc<Environment>, points: CallPoints) -> Harness {
    let harness = Harness::builder(environment).mode(Mode::Inline).points(points).start_with_bucket().await;
    (scenario.prepare)(&harness).await.expect("prepared");
    harness
}

/// Runs the operation and then the workers, until they are done or the process dies.
async fn run_with_fault(
    scenario: &Scenario,
    environment: &Arc<Environment>,
    points: CallPoints,
    (point, fault): (usize, CallFault),
    acknowledged: &Acknowledged,
) {
    let harness = prepared(scenario, environment, points.clone()).await;
    points.inject_at(point, fault);
    tokio::select! {
        biased;
        () = points.death() => {}
        () = async {
            acknowledged.set(Some((scenario.act)(&harness).await.is_ok()));
            harness.settle().await;
        } => {}
    }
}

/// Checks the state that the crash left, recovers without faults, and checks the result.
async fn recover_and_check(environment: &Arc<Environment>, expected: &Expected) {
    let harness = Harness::restart(environment, CallPoints::default()).await;
    harness.check_now().await;
    // S3 keeps an interrupted multipart upload open until it is aborted.
    harness.abort_open_uploads().await;
    harness.check(expected).await;
}

fn environment(scenario: &Scenario, database: Option<&BlockingDatabase>) -> Arc<Environment> {
    Arc::new(scenario.environment().on_database(database))
}

fn with_one_fault(
    scenario: &Scenario,
    points: &CallPoints,
    fault: (usize, CallFault),
    database: Option<&BlockingDatabase>,
) -> FaultRun {
    let (environment, acknowledged) = (environment(scenario, database), Acknowledged::default());
    run_process(run_with_fault(scenario, &environment, points.clone(), fault, &acknowledged));
    run_process(recover_and_check(&environment, &expected(scenario, &acknowledged)));
    FaultRun::of(points.has_injected())
}

/// One fault, at any call.
pub fn single(scenario: &Scenario, point: usize, fault: CallFault) -> FaultRun {
    with_one_fault(scenario, &CallPoints::default(), (point, fault), None)
}

/// One fault, at a call that changes something.
pub fn effect(scenario: &Scenario, point: usize, fault: CallFault) -> FaultRun {
    with_one_fault(scenario, &CallPoints::of_effects(), (point, fault), None)
}

/// Like [`effect`], with the catalog in this database.
pub fn effect_on(database: &BlockingDatabase, scenario: &Scenario, point: usize, fault: CallFault) -> FaultRun {
    with_one_fault(scenario, &CallPoints::of_effects(), (point, fault), Some(database))
}

/// The process dies, and the next process dies while it recovers.
pub fn pair(scenario: &Scenario, first: usize, second: usize) -> (FaultRun, FaultRun) {
    let (environment, acknowledged) = (environment(scenario, None), Acknowledged::default());
    let points = CallPoints::of_effects();
    let fault = (first, CallFault::DieAfter);
    run_process(run_with_fault(scenario, &environment, points.clone(), fault, &acknowledged));
    if !points.has_injected() {
        return (FaultRun::FewerPoints, FaultRun::FewerPoints);
    }
    let again = CallPoints::of_effects();
    again.inject_at(second, CallFault::DieAfter);
    run_process(async {
        tokio::select! {
            biased;
            () = again.death() => {}
            () = async {
                let harness = Harness::restart(&environment, again.clone()).await;
                harness.abort_open_uploads().await;
                harness.settle().await;
            } => {}
        }
    });
    run_process(recover_and_check(&environment, &expected(scenario, &acknowledged)));
    (FaultRun::Injected, FaultRun::of(again.has_injected()))
}

/// The client disconnects: its request is dropped, and the process continues.
pub fn disconnect(scenario: &Scenario, point: usize) -> FaultRun {
    let (environment, acknowledged) = (environment(scenario, None), Acknowledged::default());
    let points = CallPoints::default();
    run_process(async {
        let harness = prepared(scenario, &environment, points.clone()).await;
        let last = points.passed() + point;
        tokio::select! {
            biased;
            () = points.reached(last) => {}
            outcome = (scenario.act)(&harness) => {
                outcome.unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
                acknowledged.set(Some(true));
            }
        }
        harness.abort_open_uploads().await;
        harness.check(&expected(scenario, &acknowledged)).await;
    });
    FaultRun::of(acknowledged.get().is_none())
}
