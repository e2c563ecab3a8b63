//! Guards of the usage of backends: processes together stay within a limit, and totals only grow.

use super::Cut::Words;
use super::{Damage, damage_if, guards};
use crate::conformance::backend_usage::{allotment, month, record, requests};
use crate::conformance::fixture::Fixture;

use std::time::Duration;

const EXCEEDED: &str = "the ceilings of all processes exceed the limit";
const LOST: &str = "counted requests were lost";
const LIMIT: u64 = 100;

guards! { [sqlite, postgres]
    ceilings_belong_to_the_newest_reading in two_processes_compute_ceilings_from_one_reading: "allot_usage",
        [Words("WHERE revision = $1", "WHERE revision >= $1")], [EXCEEDED];
    an_ended_lease_is_not_extended in lease_is_extended_after_its_end: "extend_usage_leases",
        [Words(" AND lease_until > :now", "")], [EXCEEDED];
    the_larger_total_counts in an_older_total_is_recorded_last: "record_usage",
        [Words("CASE WHEN backend_usage.requests >", "CASE WHEN 0 * backend_usage.requests >")], [LOST];
}

async fn limit_exceeded(fixture: &Fixture) -> Damage {
    let live = fixture.usage_reading().await.rows.into_iter().filter(|row| row.usage.is_live);
    damage_if(live.map(|row| row.usage.ceilings.requests).sum::<u64>() > LIMIT, EXCEEDED)
}

async fn two_processes_compute_ceilings_from_one_reading(fixture: &Fixture) -> Damage {
    let revision = fixture.usage_reading().await.revision;
    for _ in 0..2 {
        let own = record(fixture.process(), requests(0));
        fixture.catalog.allot_usage(&allotment(revision, &own, LIMIT), &[]).await.unwrap_or_default();
    }
    limit_exceeded(fixture).await
}

async fn lease_is_extended_after_its_end(fixture: &Fixture) -> Damage {
    let [frozen, other] = [record(fixture.process(), requests(0)), record(fixture.process(), requests(0))];
    fixture.catalog.allot_usage(&allotment(0, &frozen, LIMIT), &[]).await.expect("stored");
    fixture.clock.advance(Duration::from_hours(1));
    fixture.catalog.allot_usage(&allotment(1, &other, LIMIT), &[]).await.expect("stored");
    let owner = (month(), frozen.instance);
    fixture.catalog.extend_usage_leases(owner, 1, Duration::from_hours(1)).await.map(drop).unwrap_or_default();
    limit_exceeded(fixture).await
}

async fn an_older_total_is_recorded_last(fixture: &Fixture) -> Damage {
    let process = fixture.process();
    for total in [7, 5] {
        fixture.catalog.record_usage(&[record(process, requests(total))]).await.expect("recorded");
    }
    damage_if(fixture.usage_totals().await != [requests(7)], LOST)
}
