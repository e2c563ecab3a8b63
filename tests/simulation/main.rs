//! Deterministic simulation: the real engine and the real workers over a real catalog and backends
//! that fail, in a paused clock, driven by one seed. Clients send random requests, hang up, and
//! hold every answer against a model; the process crashes and starts again. One seed is one run,
//! to the last detail.
//!
//! `S3O_SIM_SEED=n` runs one seed and tells what happened in it. `S3O_SOAK_SECONDS=n` runs new seeds
//! for so long. `S3O_SIM_POSTGRES=1` runs the one seed on PostgreSQL.

mod bodies;
mod client;
mod expiries;
mod journal;
mod ledger;
mod life;
mod model;
mod requests;
mod rules;
mod sky;
mod storm;
mod upkeep;
mod uploads;
mod watched;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use s3o_model::entropy::{Entropy as _, SystemEntropy};
use s3o_tests::database::StillDatabase;

use crate::journal::{Counts, Journal};
use crate::sky::Sky;
use crate::storm::KINDS;

/// Ways in which a write that was cut off ends, and an object by its expiry or by a rule; each must be among what was
/// simulated.
const ENDS: [&str; 10] = [
    "pending_reaper promoted",
    "pending_reaper dropped",
    "pending_reaper superseded",
    "pending_reaper ambiguous",
    "lifecycle deleted",
    "expiry deleted",
    "expiry worker died",
    "expiry worker was slow",
    "watchdog stuck_reset",
    "writes too late to expire",
];
/// What happens to equal content, as often.
const SHARED: [&str; 2] = ["content pinned", "content kept once"];
const SEEDS_PER_SHARD: u64 = 500;
const SEEDS_ON_POSTGRESQL: u64 = 40;
const OPERATIONS_MIN: u64 = 200;

fn asked(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Runs a seed and gives its journal, or what it died of.
fn journal_of(seed: u64, told: bool, database: Option<&StillDatabase>) -> (Journal, bool) {
    let sky = Arc::new(Sky::default());
    let journal = Journal::new(sky.clone(), told);
    let outcome = catch_unwind(AssertUnwindSafe(|| life::run(seed, &journal, &sky, database)));
    (journal, outcome.is_ok())
}

/// Runs a seed; one that fails is run again for its trace.
fn run(seed: u64, database: Option<&StillDatabase>) -> Counts {
    let (journal, passed) = journal_of(seed, false, database);
    if !passed {
        println!("S3O_SIM_SEED={seed} failed; this is what happened in it:");
        let (told, _) = journal_of(seed, true, database);
        println!("{}", told.lines().join("\n"));
        panic!("S3O_SIM_SEED={seed}");
    }
    let counts = journal.counts();
    assert!(counts.of("operations") >= OPERATIONS_MIN && counts.of("fault crash") >= 1, "seed {seed}: {counts}");
    counts
}

fn shard(number: u64) {
    if asked("S3O_SIM_SEED").is_some() {
        return;
    }
    let mut counts = Counts::default();
    let first = number * SEEDS_PER_SHARD;
    for seed in first..first + SEEDS_PER_SHARD {
        counts.absorb(&run(seed, None));
    }
    println!("seeds {first} to {}:\n{counts}", first + SEEDS_PER_SHARD - 1);
    let missing: Vec<_> = KINDS.into_iter().chain(ENDS).chain(SHARED).filter(|kind| counts.of(kind) == 0).collect();
    assert!(missing.is_empty(), "these never struck: {missing:?}");
}

#[test]
fn seeds_of_the_first_shard() {
    shard(0);
}

#[test]
fn seeds_of_the_second_shard() {
    shard(1);
}

#[test]
fn seeds_of_the_third_shard() {
    shard(2);
}

#[test]
fn seeds_of_the_fourth_shard() {
    shard(3);
}

#[test]
fn seeds_on_postgresql() {
    let (database, mut counts) = (StillDatabase::fresh(), Counts::default());
    for seed in 0..SEEDS_ON_POSTGRESQL {
        counts.absorb(&run(seed, Some(&database)));
    }
    println!("seeds 0 to {} on PostgreSQL:\n{counts}", SEEDS_ON_POSTGRESQL - 1);
}

#[test]
fn one_seed_is_one_run() {
    for seed in 7000..7010 {
        let (first, second) = (journal_of(seed, true, None).0.lines(), journal_of(seed, true, None).0.lines());
        assert!(first.len() > 400, "{} lines", first.len());
        for (line, (one, other)) in first.iter().zip(&second).enumerate() {
            assert_eq!(one, other, "line {line} of seed {seed}");
        }
        assert_eq!(first.len(), second.len(), "seed {seed}");
    }
}

#[test]
fn the_seed_that_was_asked_for() {
    if let Some(seed) = asked("S3O_SIM_SEED") {
        let database = asked("S3O_SIM_POSTGRES").map(|_| StillDatabase::fresh());
        let (journal, passed) = journal_of(seed, true, database.as_ref());
        println!("{}\n{}", journal.lines().join("\n"), journal.counts());
        assert!(passed, "S3O_SIM_SEED={seed}");
    }
}

#[test]
fn soak() {
    let Some(seconds) = asked("S3O_SOAK_SECONDS") else { return };
    let began = tokio::time::Instant::now();
    let (mut seeds, mut counts, mut told) = (0_u64, Counts::default(), 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        counts.absorb(&run(SystemEntropy.next_u64(), None));
        seeds += 1;
        if began.elapsed().as_secs() / 10 > told {
            told = began.elapsed().as_secs() / 10;
            println!("{seeds} seeds, {} operations in {} s", counts.of("operations"), began.elapsed().as_secs());
        }
    }
    println!("{seeds} seeds in {seconds} s:\n{counts}");
}
