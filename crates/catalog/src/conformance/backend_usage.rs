//! Tests of the usage of backends: totals of processes, ceilings and their leases.

use std::time::Duration;

use s3o_model::ids::InstanceId;
use s3o_model::usage::{Month, UsageLimits, UsageRecord, UsageTotals, allotted_ceilings};

use super::fixture::{Fixture, at_once, backend};
use super::refused;
use crate::{Error, MonthReading, UsageAllotment, Verdict};

const LEASE: Duration = Duration::from_mins(2);
const LIMIT: u64 = 1000;

/// The month of the fixture's clock.
#[must_use]
pub fn month() -> Month {
    "2023-11".parse().expect("valid")
}

/// A number of requests.
#[must_use]
pub fn requests(requests: u64) -> UsageTotals {
    UsageTotals { requests, ..UsageTotals::default() }
}

/// A process with these totals of the backend `b2`.
#[must_use]
pub fn record(instance: InstanceId, totals: UsageTotals) -> UsageRecord {
    UsageRecord { backend: backend("b2"), month: month(), instance, totals }
}

/// Ceilings of a process with these totals.
#[must_use]
pub fn allotment(revision: u64, own: &UsageRecord, ceiling: u64) -> UsageAllotment {
    UsageAllotment { revision, lease: LEASE, ceilings: vec![(own.clone(), requests(ceiling))] }
}

impl Fixture {
    /// A process that starts a millisecond after the one before, so that processes sort by their start.
    #[must_use]
    pub fn process(&self) -> InstanceId {
        self.clock.advance(Duration::from_millis(1));
        self.claimant().instance
    }

    /// Usage of the month.
    pub async fn usage_reading(&self) -> MonthReading {
        self.catalog.usage_of_month(month()).await.expect("a query")
    }

    /// Recorded totals, in the order of the processes.
    pub async fn usage_totals(&self) -> Vec<UsageTotals> {
        self.usage_reading().await.rows.iter().map(|row| row.usage.totals).collect()
    }
}

/// Records may arrive in any order and any number of times.
pub async fn totals_are_merged_by_the_larger_number(fixture: &Fixture) {
    let process = fixture.process();
    assert_eq!(fixture.catalog.record_usage(&[]).await.expect("nothing to do"), None);
    let totals = |requests, egress_bytes, ingress_bytes| UsageTotals { requests, egress_bytes, ingress_bytes };
    for recorded in [totals(5, 70, 1), totals(6, 60, 1), totals(5, 70, 1)] {
        let now = fixture.catalog.record_usage(&[record(process, recorded)]).await.expect("recorded");
        assert_eq!(now, Some(fixture.now()));
    }
    assert_eq!(fixture.usage_totals().await, [totals(6, 70, 1)]);
    let other = fixture.process();
    let other_month = UsageRecord { month: month().plus(-1), ..record(other, totals(9, 9, 9)) };
    fixture.catalog.record_usage(&[record(other, totals(1, 0, 0)), other_month]).await.expect("recorded");
    assert_eq!(fixture.usage_totals().await, [totals(6, 70, 1), totals(1, 0, 0)]);
}

/// A month without usage has the catalog's clock and no rows.
pub async fn empty_month_returns_the_clock(fixture: &Fixture) {
    let reading = fixture.usage_reading().await;
    assert_eq!(reading, MonthReading { now: fixture.now(), revision: 0, rows: vec![] });
}

/// Of two processes that computed ceilings from the same reading, one must compute again.
pub async fn ceilings_are_stored_for_the_newest_reading_only(fixture: &Fixture) {
    let [first, second] = [record(fixture.process(), requests(3)), record(fixture.process(), requests(4))];
    let revision = fixture.usage_reading().await.revision;
    fixture.catalog.allot_usage(&allotment(revision, &first, 500), &[]).await.expect("stored");
    refused(fixture.catalog.allot_usage(&allotment(revision, &second, 500), &[]).await, Verdict::RunAgain);
    let reading = fixture.usage_reading().await;
    assert_eq!((reading.revision, reading.rows.len()), (revision + 1, 1), "the refused unit changed nothing");
    let usage = reading.rows[0].usage;
    assert_eq!((usage.totals, usage.ceilings, usage.is_live), (requests(3), requests(500), true));
    let previous = UsageRecord { month: month().plus(-1), ..second.clone() };
    fixture.catalog.allot_usage(&allotment(revision + 1, &second, 9), &[previous]).await.expect("stored");
    assert_eq!(fixture.usage_totals().await, [requests(3), requests(4)]);
}

/// The catalog's clock decides. An ended lease is not extended.
pub async fn lease_on_ceilings_ends(fixture: &Fixture) {
    let own = record(fixture.process(), requests(3));
    let owner = (month(), own.instance);
    fixture.catalog.allot_usage(&allotment(0, &own, 10), &[]).await.expect("stored");
    fixture.wait_almost(LEASE);
    assert!(fixture.usage_reading().await.rows[0].usage.is_live);
    let extended = fixture.catalog.extend_usage_leases(owner, 1, LEASE).await.expect("extended");
    assert_eq!(extended, Some(fixture.now()));
    refused(fixture.catalog.extend_usage_leases(owner, 2, LEASE).await, Verdict::Fenced);
    fixture.clock.advance(LEASE);
    assert!(!fixture.usage_reading().await.rows[0].usage.is_live);
    refused(fixture.catalog.extend_usage_leases(owner, 1, LEASE).await, Verdict::Fenced);
}

/// A process returns it at its shutdown, and the only process of a catalog returns all shares at its start.
pub async fn ended_process_returns_its_share(fixture: &Fixture) {
    let own = record(fixture.process(), requests(3));
    fixture.catalog.allot_usage(&allotment(0, &own, 10), &[]).await.expect("stored");
    let last = record(own.instance, requests(5));
    fixture.catalog.end_usage(month(), own.instance, &[last]).await.expect("ended");
    let reading = fixture.usage_reading().await;
    assert_eq!((reading.rows[0].usage.totals, reading.rows[0].usage.is_live), (requests(5), false));
    fixture.catalog.allot_usage(&allotment(reading.revision, &own, 10), &[]).await.expect("stored");
    fixture.catalog.take_over().await.expect("taken over");
    assert!(!fixture.usage_reading().await.rows[0].usage.is_live);
}

/// One row for each backend and month remains, until the month is deleted.
pub async fn old_months_are_folded_and_deleted(fixture: &Fixture) {
    let processes = [fixture.process(), fixture.process()];
    for back in [0, 1, 2, 14] {
        let records =
            processes.map(|process| UsageRecord { month: month().plus(-back), ..record(process, requests(2)) });
        fixture.catalog.record_usage(&records).await.expect("recorded");
    }
    for _ in 0..2 {
        fixture.catalog.fold_usage(month().plus(-1), month().plus(-13)).await.expect("folded");
    }
    let late = UsageRecord { month: month().plus(-2), ..record(fixture.process(), requests(5)) };
    fixture.catalog.record_usage(&[late]).await.expect("recorded");
    fixture.catalog.fold_usage(month().plus(-1), month().plus(-13)).await.expect("folded");
    let rows =
        fixture.rows("SELECT month, instance, requests FROM backend_usage ORDER BY month, instance", vec![]).await;
    let rows: Vec<_> =
        rows.iter().map(|row| (row.string("month").expect("text"), row.int("requests").expect("a number"))).collect();
    let kept = |back: i32, requests| (month().plus(-back).to_string(), requests);
    assert_eq!(rows, [kept(2, 9), kept(1, 2), kept(1, 2), kept(0, 2), kept(0, 2)]);
}

async fn allot_share(fixture: &Fixture, process: InstanceId) -> Result<(), Error> {
    let (limits, own) = (UsageLimits::new(requests(LIMIT)), record(process, requests(1)));
    loop {
        let reading = fixture.usage_reading().await;
        let others: Vec<_> = reading.rows.iter().filter(|row| row.instance != process).map(|row| row.usage).collect();
        let ceilings = allotted_ceilings(&limits, &own.totals, &others, &requests(0)).requests;
        match fixture.catalog.allot_usage(&allotment(reading.revision, &own, ceilings), &[]).await {
            Err(Error::Guard(Verdict::RunAgain)) => {}
            done => return done,
        }
    }
}

/// The ceilings of processes that start together do not exceed the limit.
pub async fn concurrent_allotments_stay_within_the_limit(fixture: &Fixture) {
    let processes: Vec<_> = (0..8).map(|_| (fixture.clone(), fixture.process())).collect();
    let tasks = processes.into_iter().map(|(fixture, process)| async move { allot_share(&fixture, process).await });
    for allotted in at_once(tasks.collect()).await {
        allotted.expect("stored");
    }
    let reading = fixture.usage_reading().await;
    let ceilings: u64 = reading.rows.iter().map(|row| row.usage.ceilings.requests).sum();
    assert!(reading.rows.len() == 8 && ceilings <= LIMIT, "{ceilings} in {} rows", reading.rows.len());
}
