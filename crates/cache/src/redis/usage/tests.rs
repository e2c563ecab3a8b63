//! Tests of the fields in Redis, and of the exchange through a real Redis.

use std::sync::Arc;
use std::time::Duration;

use s3o_model::clock::SystemClock;
use s3o_model::entropy::SystemEntropy;
use s3o_model::ids::{IdSource, InstanceId};
use s3o_model::usage::{Month, UsageRecord, UsageTotals};
use tokio::time::timeout;

use super::{RedisUsage, record};
use crate::redis::tests::{TaskGuard, url};
use crate::tier::TierError;

const INSTANCE: &str = "018f0000000070008000000000000001";

fn month() -> Month {
    "2026-11".parse().expect("valid")
}

#[test]
fn fields_are_read_and_foreign_values_ignored() {
    let field = format!("{INSTANCE}:b2");
    let found = record(month(), &field, "1 2 3").expect("a record");
    assert_eq!((found.backend.as_str(), found.instance.to_string().as_str()), ("b2", INSTANCE));
    assert_eq!(found.totals, UsageTotals { requests: 1, egress_bytes: 2, ingress_bytes: 3 });
    for (field, value) in [("b2", "1 2 3"), ("x:b2", "1 2 3"), (&field, "1 2"), (&field, "-1 2 3")] {
        assert_eq!(record(month(), field, value), None, "{field} {value}");
    }
}

/// A connected client of a cluster.
async fn connected(cluster: &str) -> (Arc<RedisUsage>, TaskGuard) {
    let usage = Arc::new(RedisUsage::new(&url(), cluster).expect("a valid URL"));
    let polled = Arc::clone(&usage);
    let maintenance = TaskGuard::new(tokio::spawn(async move { polled.stay_reachable().await }));
    let reachable = async {
        while usage.exchange(&[], &[month()]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), reachable).await.expect("connected");
    (usage, maintenance)
}

#[tokio::test]
async fn processes_of_a_cluster_read_each_others_totals() {
    let ids = IdSource::new(Arc::new(SystemClock), Arc::new(SystemEntropy));
    let cluster = ids.fresh().as_simple().to_string();
    let ((first, _first_maintenance), (second, _second_maintenance)) =
        (connected(&cluster).await, connected(&cluster).await);
    let record = |requests, month| UsageRecord {
        backend: "b2".parse().expect("valid"),
        month,
        instance: InstanceId::new(ids.fresh()),
        totals: UsageTotals { requests, ..UsageTotals::default() },
    };
    let (now, before) = (record(5, month()), record(7, month().plus(-1)));
    first.exchange(&[now.clone(), before.clone()], &[month()]).await.expect("written");
    let read = second.exchange(&[], &[month().plus(-1), month()]).await.expect("read");
    assert_eq!(read, [before, now]);
    let (other, _maintenance) = connected("another-cluster").await;
    assert_eq!(other.exchange(&[], &[month()]).await.expect("read"), []);
}

#[tokio::test]
async fn without_a_connection_nothing_is_exchanged() {
    let usage = RedisUsage::new("redis://127.0.0.1:1", "c").expect("a valid URL");
    assert_eq!(usage.exchange(&[], &[month()]).await, Err(TierError::Skipped));
}
