//! Tests of several processes on one catalog, with clocks that the tests advance.

mod cluster;

use std::time::Duration;

use s3o_catalog::DriverLayer as _;
use s3o_catalog::unit::Statement;
use s3o_model::ids::InstanceId;
use s3o_model::usage::{UsagePurpose, UsageRecord, UsageTotals};

use cluster::{Cluster, INTERVAL, NEARLY_DECEMBER};

/// Longer than a lease.
const LEASE_END: Duration = Duration::from_mins(3);

#[tokio::test]
async fn processes_without_redis_use_up_a_limit_and_do_not_exceed_it() {
    let cluster = Cluster::new();
    let processes = [cluster.process(5000).await, cluster.process(5000).await];
    let mut sent = 0;
    for round in 0..60 {
        for process in &processes {
            sent += process.send(if round < 3 { 200 } else { 1000 });
            process.obtain_ceilings().await;
            assert!(sent <= 5000, "{sent} requests were sent in round {round}");
        }
        cluster.advance(&[&processes[0], &processes[1]], Duration::from_secs(1));
    }
    assert_eq!(sent, 5000);
    processes[0].flush().await;
    processes[1].flush().await;
    assert_eq!(cluster.recorded("2026-11").await, 5000);
    assert!(processes.iter().all(|process| process.usage.reached(UsagePurpose::Write).is_some()));
}

#[tokio::test]
async fn one_process_alone_uses_up_the_limit() {
    let cluster = Cluster::new();
    let process = cluster.process(100).await;
    let mut sent = 0;
    for _ in 0..20 {
        sent += process.send(1000);
        process.obtain_ceilings().await;
    }
    assert_eq!(sent, 100);
}

#[tokio::test]
async fn flushing_twice_changes_nothing() {
    let cluster = Cluster::new();
    let process = cluster.process(0).await;
    assert_eq!(process.send(7), 7);
    process.flush().await;
    process.flush().await;
    assert_eq!((cluster.recorded("2026-11").await, process.shown()), (7, 7));
}

#[tokio::test]
async fn a_process_that_was_killed_loses_at_most_one_flush_and_its_share_is_used_by_others() {
    let cluster = Cluster::new();
    let (killed, other) = (cluster.process(100).await, cluster.process(100).await);
    killed.send(10);
    killed.flush().await;
    killed.send(5);
    drop(killed);
    let mut sent = 0;
    for _ in 0..10 {
        sent += other.send(1000);
        other.obtain_ceilings().await;
    }
    assert!(sent < 90, "the ceilings of the killed process are reserved until its lease ends");
    cluster.advance(&[&other], LEASE_END);
    for _ in 0..10 {
        sent += other.send(1000);
        other.obtain_ceilings().await;
    }
    assert_eq!(sent, 90);
}

#[tokio::test]
async fn an_idle_process_returns_the_share_that_others_need() {
    let cluster = Cluster::new();
    let (idle, busy) = (cluster.process(1000).await, cluster.process(1000).await);
    let mut sent = 0;
    for _ in 0..40 {
        sent += busy.send(1000);
        busy.obtain_ceilings().await;
        idle.flush().await;
        cluster.advance(&[&idle, &busy], INTERVAL);
        busy.flush().await;
    }
    assert!(sent >= 998, "{sent} of 1000 requests were permitted");
}

#[tokio::test]
async fn each_request_counts_in_one_month_whatever_the_wall_clock() {
    let cluster = Cluster::new();
    let process = cluster.process_with_clock(0, NEARLY_DECEMBER + 86_400_000).await;
    process.send(3);
    cluster.advance(&[&process], Duration::from_hours(1));
    process.send(4);
    process.flush().await;
    assert_eq!((cluster.recorded("2026-11").await, cluster.recorded("2026-12").await), (3, 4));
    assert_eq!(process.shown(), 4);
}

#[tokio::test]
async fn an_idle_flush_runs_at_most_one_statement() {
    for request_limit in [0, 1000] {
        let cluster = Cluster::new();
        let process = cluster.process(request_limit).await;
        process.send(5);
        process.flush().await;
        for _ in 0..20 {
            cluster.advance(&[&process], INTERVAL);
            cluster.statements();
            process.flush().await;
            assert!(cluster.statements() <= 1);
            assert_eq!(process.usage.reached(UsagePurpose::Read), None, "the lease is extended");
        }
    }
}

#[tokio::test]
async fn a_process_continues_in_the_next_month_without_waiting() {
    let cluster = Cluster::new();
    let process = cluster.process(100).await;
    assert_eq!(process.send(1000), 50);
    cluster.advance(&[&process], Duration::from_mins(59));
    process.flush().await;
    cluster.advance(&[&process], Duration::from_mins(1));
    assert_eq!(process.send(20), 20);
    process.obtain_ceilings().await;
    process.flush().await;
    assert_eq!((cluster.recorded("2026-11").await, cluster.recorded("2026-12").await), (50, 20));
}

#[tokio::test]
async fn totals_of_an_ended_process_that_only_redis_knows_are_imported_once() {
    let cluster = Cluster::new();
    let process = cluster.process(0).await;
    let ended = UsageRecord {
        backend: process.usage.backend().clone(),
        month: "2026-11".parse().expect("valid"),
        instance: InstanceId::new(cluster.ids.fresh()),
        totals: UsageTotals { requests: 9, ..UsageTotals::default() },
    };
    process.ledger.known.lock().add_shared(&[ended]);
    assert_eq!((process.flush().await, process.flush().await), (1, 0));
    assert_eq!(cluster.recorded("2026-11").await, 9);
}

#[tokio::test]
async fn an_ended_process_records_its_totals_and_returns_its_share() {
    let cluster = Cluster::new();
    let process = cluster.process(90).await;
    process.send(7);
    process.ledger.end().await.expect("recorded");
    let next = cluster.process(90).await;
    assert_eq!((cluster.recorded("2026-11").await, next.shown()), (7, 7));
    assert_eq!(next.usage.allotment().expect("registered").ceilings.requests, 42);
}

#[tokio::test]
async fn processes_of_old_months_are_folded_into_one_row() {
    let cluster = Cluster::new();
    let (first, second) = (cluster.process(0).await, cluster.process(0).await);
    first.send(3);
    second.send(4);
    first.flush().await;
    second.flush().await;
    // To January: November is not the last month any more.
    cluster.advance(&[&first, &second], Duration::from_hours(24 * 40));
    first.flush().await;
    second.flush().await;
    assert_eq!(cluster.recorded("2026-11").await, 0, "no process is left");
    let sql = "SELECT instance, requests FROM backend_usage WHERE month = '2026-11'";
    let folded = cluster.driver.on_read(Statement::new(sql, vec![])).await.expect("a query");
    let rows: Vec<_> = folded.iter().map(|row| (row.string("instance"), row.int("requests"))).collect();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].0.as_deref().ok(), rows[0].1.as_ref().ok()), (Some(""), Some(&7)));
}
