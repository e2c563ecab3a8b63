//! The lives of one run: one that is struck, one that may be struck again while it recovers, and
//! one that recovers in peace and is judged.

use std::cell::Cell;

use s3o_catalog::Mode;
use s3o_tests::database::StillDatabase;
use s3o_tests::house::{Expected, Ground, House, bucket};
use s3o_tests::points::{Blow, Points};
use s3o_tests::scenarios::{Scenario, either};
use tokio::runtime::Builder;

/// Whether the blow found its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// It did.
    Struck,
    /// There are fewer points.
    Unharmed,
}

impl Run {
    fn of(struck: bool) -> Self {
        if struck { Self::Struck } else { Self::Unharmed }
    }
}

/// A life ends with its runtime: whatever is under way ends where it stands.
fn live<T>(life: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(life)
}

/// What the client was told of the operation.
type Told = Cell<Option<bool>>;

fn expected(scenario: &Scenario, told: &Told) -> Expected {
    if told.get() == Some(true) { (scenario.after)() } else { either(scenario) }
}

async fn prepared(scenario: &Scenario, ground: &Ground, points: Points) -> House {
    let house = House::on(ground, Mode::Inline, points).await;
    house.engine.create_bucket(&bucket()).await.expect("a bucket");
    (scenario.prepare)(&house).await.expect("prepared");
    house
}

/// Does the operation, and lets the workers run behind it.
async fn first_life(scenario: &Scenario, ground: &Ground, points: Points, strike: (usize, Blow), told: &Told) {
    let house = prepared(scenario, ground, points.clone()).await;
    points.strike_at(strike.0, strike.1);
    tokio::select! {
        biased;
        () = points.death() => {}
        () = async {
            told.set(Some((scenario.act)(&house).await.is_ok()));
            house.settle().await;
        } => {}
    }
}

/// Recovers in peace, and is judged: what the crash left, and what has become of it.
async fn last_life(ground: &Ground, expected: &Expected) {
    let house = House::on(ground, Mode::Inline, Points::default()).await;
    house.check_now().await;
    // A multipart upload that was given up half way stays open: that is what S3 promises.
    house.abort_open_uploads().await;
    house.check(expected).await;
}

/// Where a scenario takes place.
fn ground(scenario: &Scenario, database: Option<&StillDatabase>) -> Ground {
    Ground::new(scenario.put_bytes_max).with_dedup(scenario.dedup).on(database)
}

fn struck_once(scenario: &Scenario, points: &Points, strike: (usize, Blow), database: Option<&StillDatabase>) -> Run {
    let (ground, told) = (ground(scenario, database), Told::default());
    live(first_life(scenario, &ground, points.clone(), strike, &told));
    live(last_life(&ground, &expected(scenario, &told)));
    Run::of(points.has_struck())
}

/// One blow, anywhere.
pub fn single(scenario: &Scenario, point: usize, blow: Blow) -> Run {
    struck_once(scenario, &Points::default(), (point, blow), None)
}

/// One blow, at a call that changes something.
pub fn effect(scenario: &Scenario, point: usize, blow: Blow) -> Run {
    struck_once(scenario, &Points::of_effects(), (point, blow), None)
}

/// The same, with the catalog in this database.
pub fn effect_on(database: &StillDatabase, scenario: &Scenario, point: usize, blow: Blow) -> Run {
    struck_once(scenario, &Points::of_effects(), (point, blow), Some(database))
}

/// A death, and another one while the next process recovers.
pub fn pair(scenario: &Scenario, first: usize, second: usize) -> (Run, Run) {
    let (ground, told) = (ground(scenario, None), Told::default());
    let points = Points::of_effects();
    live(first_life(scenario, &ground, points.clone(), (first, Blow::DieAfter), &told));
    if !points.has_struck() {
        return (Run::Unharmed, Run::Unharmed);
    }
    let again = Points::of_effects();
    again.strike_at(second, Blow::DieAfter);
    live(async {
        tokio::select! {
            biased;
            () = again.death() => {}
            () = async {
                let house = House::on(&ground, Mode::Inline, again.clone()).await;
                house.abort_open_uploads().await;
                house.settle().await;
            } => {}
        }
    });
    live(last_life(&ground, &expected(scenario, &told)));
    (Run::Struck, Run::of(again.has_struck()))
}

/// The client hangs up: the future is dropped, and the process goes on.
pub fn given_up(scenario: &Scenario, point: usize) -> Run {
    let (ground, told) = (ground(scenario, None), Told::default());
    let points = Points::default();
    live(async {
        let house = prepared(scenario, &ground, points.clone()).await;
        let last = points.passed() + point;
        tokio::select! {
            biased;
            () = points.reached(last) => {}
            outcome = (scenario.act)(&house) => {
                outcome.unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
                told.set(Some(true));
            }
        }
        house.abort_open_uploads().await;
        house.check(&expected(scenario, &told)).await;
    });
    Run::of(told.get().is_none())
}
