//! Each request is given up at each step: its future is dropped there, and the client's body
//! breaks off with it.

use s3o_catalog::Mode;

use crate::house::House;
use crate::scenarios::{ALL, Scenario, either};

/// Drops the operation after so many steps; says whether it came to its end before.
async fn given_up_after(scenario: &Scenario, house: &House, steps: usize) -> bool {
    let last = house.steps.taken() + steps;
    tokio::select! {
        biased;
        () = house.steps.reached(last) => false,
        outcome = (scenario.act)(house) => {
            outcome.unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
            true
        }
    }
}

#[tokio::test]
async fn a_request_may_be_given_up_at_any_step() {
    for scenario in &ALL {
        let mut steps = 1;
        loop {
            let house = House::new(scenario.put_bytes_max, Mode::Inline).await;
            (scenario.prepare)(&house).await.expect("prepared");
            let ended = given_up_after(scenario, &house, steps).await;
            let expected = if ended { (scenario.after)() } else { either(scenario) };
            // A multipart upload that was given up half way stays open: that is what S3 promises.
            house.abort_open_uploads().await;
            house.check(&expected).await;
            if ended {
                break;
            }
            steps += 1;
        }
        println!("{}: given up at each of {steps} steps", scenario.name);
        assert!(steps > 3, "{} had no steps to be given up at", scenario.name);
    }
}
