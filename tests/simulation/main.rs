//! Deterministic simulation: the real engine and workers over a real catalog and backends that fail, in a paused clock,
//! driven by one seed. Clients send random requests, disconnect, and compare every answer with a model; the process
//! crashes and starts again. A seed determines every event of its run.
//!
//! `S3O_SIM_SEED=n` runs one seed and prints its events. `S3O_SOAK_SECONDS=n` runs new seeds for that long.
//! `S3O_SIM_POSTGRES=1` runs the one seed on PostgreSQL.

mod answers;
mod background;
mod bodies;
mod checks;
mod client;
mod clock;
mod copies;
mod expiries;
mod fault_schedule;
mod journal;
mod layers;
mod ledger;
mod model;
mod requests;
mod rules;
mod run;
mod uploads;
mod write_offs;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use s3o_model::entropy::{Entropy as _, SystemEntropy};
use s3o_tests::database::BlockingDatabase;

use crate::clock::SimulatedClock;
use crate::fault_schedule::FAULT_KINDS;
use crate::journal::{EventCounts, Journal};

/// Outcomes of interrupted writes and of expirations; each must occur in every shard.
const OUTCOMES: [&str; 10] = [
    "pending_reaper promoted",
    "pending_reaper dropped",
    "pending_reaper superseded",
    "pending_reaper ambiguous",
    "lifecycle deleted",
    "expiry deleted",
    "expiry worker died",
    "expiry worker was slow",
    "watchdog stuck_reset",
    "writes with an expiry in the past",
];
/// Dedup events; each must occur in every shard.
const DEDUP: [&str; 2] = ["content pinned", "content kept once"];
/// Changes of the number of copies; each must occur in every shard.
const COPIES: [&str; 13] = [
    "factor changed",
    "backend accepted",
    "unhealthy began",
    "unhealthy ended",
    "drain started",
    "replicator copied",
    "over_replication removed",
    "drain moved",
    "drain removed",
    "rebalancer moved",
    "backend written off",
    "write-off waits for writes",
    "lost_copies",
];
const SEEDS_PER_SHARD: u64 = 500;
const SEEDS_ON_POSTGRESQL: u64 = 40;
const OPERATIONS_MIN: u64 = 200;

fn env_number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// Runs a seed; returns its journal and whether every check passed.
fn journal_of(seed: u64, verbose: bool, database: Option<&BlockingDatabase>) -> (Journal, bool) {
    let clock = Arc::new(SimulatedClock::default());
    let journal = Journal::new(clock.clone(), verbose);
    let outcome = catch_unwind(AssertUnwindSafe(|| run::run(seed, &journal, &clock, database)));
    (journal, outcome.is_ok())
}

/// Runs a seed; one that fails runs again with a verbose journal.
fn check_seed(seed: u64, database: Option<&BlockingDatabase>) -> EventCounts {
    let (journal, passed) = journal_of(seed, false, database);
    if !passed {
        println!("S3O_SIM_SEED={seed} failed, its events:");
        let (verbose, _) = journal_of(seed, true, database);
        println!("{}", verbose.lines().join("\n"));
        panic!("S3O_SIM_SEED={seed}");
    }
    let counts = journal.counts();
    assert!(counts.of("operations") >= OPERATIONS_MIN && counts.of("fault crash") >= 1, "seed {seed}: {counts}");
    counts
}

fn shard(number: u64) {
    if env_number("S3O_SIM_SEED").is_some() {
        return;
    }
    let mut counts = EventCounts::default();
    let first = number * SEEDS_PER_SHARD;
    for seed in first..first + SEEDS_PER_SHARD {
        counts.absorb(&check_seed(seed, None));
    }
    println!("seeds {first} to {}:\n{counts}", first + SEEDS_PER_SHARD - 1);
    let missing: Vec<_> = FAULT_KINDS
        .into_iter()
        .chain(OUTCOMES)
        .chain(DEDUP)
        .chain(COPIES)
        .filter(|kind| counts.of(kind) == 0)
        .collect();
    assert!(missing.is_empty(), "these never occurred: {missing:?}");
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
    let (database, mut counts) = (BlockingDatabase::fresh(), EventCounts::default());
    for seed in 0..SEEDS_ON_POSTGRESQL {
        counts.absorb(&check_seed(seed, Some(&database)));
    }
    println!("seeds 0 to {} on PostgreSQL:\n{counts}", SEEDS_ON_POSTGRESQL - 1);
}

#[test]
fn equal_seeds_produce_equal_events() {
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
fn seed_from_environment() {
    if let Some(seed) = env_number("S3O_SIM_SEED") {
        let database = env_number("S3O_SIM_POSTGRES").map(|_| BlockingDatabase::fresh());
        let (journal, passed) = journal_of(seed, true, database.as_ref());
        println!("{}\n{}", journal.lines().join("\n"), journal.counts());
        assert!(passed, "S3O_SIM_SEED={seed}");
    }
}

#[test]
fn soak() {
    let Some(seconds) = env_number("S3O_SOAK_SECONDS") else { return };
    let began = tokio::time::Instant::now();
    let (mut seeds, mut counts, mut reported) = (0_u64, EventCounts::default(), 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        counts.absorb(&check_seed(SystemEntropy.next_u64(), None));
        seeds += 1;
        if began.elapsed().as_secs() / 10 > reported {
            reported = began.elapsed().as_secs() / 10;
            println!("{seeds} seeds, {} operations in {} s", counts.of("operations"), began.elapsed().as_secs());
        }
    }
    println!("{seeds} seeds in {seconds} s:\n{counts}");
}
