//! Fuzz targets for everything that reads untrusted input.
//!
//! A target is a function of bytes that panics when a check fails. The inputs are examples from `corpus/`, mutated by a
//! seeded generator: `make test` runs the same seeds every time, `make fuzz` runs new ones. `tests/README.md` says how
//! to replay a failure.

mod answers;
mod chunked;
mod document;
mod keys;
mod listings;
mod mutate;
mod names;
mod ranges;
mod requests;
mod runner;
mod s3_server;
mod sign;
mod signatures;
mod stores;
mod tokens;

use runner::FuzzTarget;

#[test]
fn physical_keys_are_safe_and_unique() {
    FuzzTarget { name: "keys", short_runs: 6_000 }.run(keys::target);
}

#[test]
fn ranges_stay_within_the_object() {
    let mut server = s3_server::S3Server::new();
    FuzzTarget { name: "ranges", short_runs: 1_500 }.run(|input| ranges::target(&mut server, input));
}

#[test]
fn pages_of_listing_equal_full_listing() {
    FuzzTarget { name: "listings", short_runs: 6_000 }.run(listings::target);
}

#[test]
fn tokens_continue_after_their_key_or_are_refused() {
    let mut server = s3_server::S3Server::new();
    FuzzTarget { name: "tokens", short_runs: 400 }.run(|input| tokens::target(&mut server, input));
}

#[test]
fn keys_and_tags_round_trip_through_every_document() {
    let mut server = s3_server::S3Server::new();
    FuzzTarget { name: "names", short_runs: 100 }.run(|input| names::target(&mut server, input));
}

#[test]
fn every_request_is_answered_and_refusals_change_nothing() {
    let mut server = s3_server::S3Server::new();
    FuzzTarget { name: "requests", short_runs: 1_000 }.run(|input| requests::target(&mut server, input));
}

#[test]
fn tampered_signed_requests_are_refused() {
    let mut server = s3_server::S3Server::new();
    FuzzTarget { name: "signatures", short_runs: 1_500 }.run(|input| signatures::target(&mut server, input));
}

#[test]
fn chunked_bodies_are_decoded_exactly() {
    let mut server = s3_server::S3Server::new();
    FuzzTarget { name: "chunked", short_runs: 500 }.run(|input| chunked::target(&mut server, input));
}

#[test]
fn any_answer_of_a_store_is_handled() {
    let mut service = stores::ScriptedService::new();
    FuzzTarget { name: "stores", short_runs: 200 }.run(|input| stores::target(&mut service, input));
}

#[test]
fn every_example_has_its_stated_status() {
    let mut server = s3_server::S3Server::new();
    for (name, example) in runner::examples("requests") {
        requests::check_example(&mut server, &name, &example);
    }
}
