//! Fuzz targets for everything that reads what a stranger sends.
//!
//! A target is a function of bytes that panics when something is wrong. The inputs are examples from
//! `corpus/`, changed by a generator with a seed: `make test` runs the same seeds every time, `make
//! fuzz` runs new ones for as long as it is asked to. CONTRIBUTING.md says how to replay a failure.

mod answers;
mod chunked;
mod document;
mod door;
mod harness;
mod keys;
mod listings;
mod mutate;
mod names;
mod ranges;
mod requests;
mod sign;
mod signatures;
mod stores;
mod tokens;

use harness::Target;

#[test]
fn keys_are_escaped_safely_and_apart() {
    Target { name: "keys", short_runs: 6_000 }.run(keys::target);
}

#[test]
fn ranges_stay_within_the_object() {
    let mut door = door::Keeper::new();
    Target { name: "ranges", short_runs: 1_500 }.run(|input| ranges::target(&mut door, input));
}

#[test]
fn listings_show_what_there_is() {
    Target { name: "listings", short_runs: 6_000 }.run(listings::target);
}

#[test]
fn tokens_lead_where_they_say_or_nowhere() {
    let mut door = door::Keeper::new();
    Target { name: "tokens", short_runs: 400 }.run(|input| tokens::target(&mut door, input));
}

#[test]
fn names_survive_every_document() {
    let mut door = door::Keeper::new();
    Target { name: "names", short_runs: 100 }.run(|input| names::target(&mut door, input));
}

#[test]
fn requests_are_answered_whatever_they_say() {
    let mut door = door::Keeper::new();
    Target { name: "requests", short_runs: 1_000 }.run(|input| requests::target(&mut door, input));
}

#[test]
fn signatures_protect_what_they_cover() {
    let mut door = door::Keeper::new();
    Target { name: "signatures", short_runs: 1_500 }.run(|input| signatures::target(&mut door, input));
}

#[test]
fn chunked_bodies_are_read_exactly() {
    let mut door = door::Keeper::new();
    Target { name: "chunked", short_runs: 500 }.run(|input| chunked::target(&mut door, input));
}

#[test]
fn stores_may_answer_anything() {
    let mut service = stores::Service::new();
    Target { name: "stores", short_runs: 200 }.run(|input| stores::target(&mut service, input));
}

#[test]
fn every_example_is_answered_as_it_says() {
    let mut door = door::Keeper::new();
    for (name, example) in harness::examples("requests") {
        requests::check_example(&mut door, &name, &example);
    }
}
