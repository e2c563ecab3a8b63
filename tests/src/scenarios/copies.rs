//! Scenarios with two copies of each object on three backends: writes, a changed factor, a drain, an unhealthy backend,
//! a rebalance, and a write-off.

use std::time::Duration;

use s3o_catalog::UnhealthyRule;
use s3o_engine::Error;
use s3o_model::ids::InstanceId;
use s3o_model::placement::Strategy;
use s3o_model::rebalance::RebalanceRules;
use s3o_model::usage::{UsageLimits, UsagePolicy, UsageTotals};

use super::expiry::tick;
use super::{LARGE, Scenario, Work, delete, holds, nothing, put_new, put_old};
use crate::harness::{Expected, Harness};

/// Ticks that a change of the factor needs: a page of the review, its end, and the work.
pub(super) const TICKS: usize = 4;

pub(super) fn failed(error: &s3o_catalog::Error) -> Error {
    Error::Away(error.to_string())
}

async fn change_factor(harness: &Harness, factor: usize) -> Result<(), Error> {
    harness.catalog.set_factors(factor, &[]).await.map_err(|error| failed(&error))?;
    for _ in 0..TICKS {
        tick(harness, "replicator").await?;
        tick(harness, "over_replication").await?;
    }
    Ok(())
}

/// One copy is removed, then written again. Whatever fails in between, two copies remain in the end.
fn lower_and_raise_the_factor(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let lowered = change_factor(harness, 1).await;
        let raised = change_factor(harness, 2).await;
        // The factor of the configuration is set at every start; here it is set again after a fault.
        if raised.is_err() {
            change_factor(harness, 2).await?;
        }
        lowered.and(raised)
    })
}

/// Empties the first backend and takes it into use again.
fn drain_and_undrain(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let all: Vec<_> = harness.environment.backends.iter().map(crate::environment::TestBackend::name).collect();
        harness.catalog.start_drain(&all[0], &all).await.map_err(|error| failed(&error))?;
        for _ in 0..TICKS {
            tick(harness, "drain").await?;
        }
        harness.catalog.stop_drain(&all[0]).await.map_err(|error| failed(&error))
    })
}

/// The first backend becomes unhealthy, its copies are replaced, and it recovers.
fn become_unhealthy_and_recover(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let all: Vec<_> = harness.environment.backends.iter().map(crate::environment::TestBackend::name).collect();
        let (instance, hour) = (InstanceId::new(harness.process.ids().fresh()), Duration::from_hours(1));
        let rule = UnhealthyRule { after: hour, answer_wait: Duration::ZERO };
        harness.catalog.record_view(instance, &all[0], Some(hour)).await.map_err(|error| failed(&error))?;
        harness.catalog.begin_unhealthy(&all[0], &all, rule).await.map_err(|error| failed(&error))?;
        for _ in 0..TICKS {
            tick(harness, "replicator").await?;
        }
        harness.catalog.end_unhealthy(&all[0]).await.map_err(|error| failed(&error))?;
        for _ in 0..TICKS {
            tick(harness, "replicator").await?;
            tick(harness, "over_replication").await?;
        }
        Ok(())
    })
}

/// Stores the object on the last two backends.
pub(super) fn put_behind_the_first(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let all: Vec<_> = harness.environment.backends.iter().map(crate::environment::TestBackend::name).collect();
        harness.catalog.start_drain(&all[0], &all).await.map_err(|error| failed(&error))?;
        put_old(harness).await?;
        harness.catalog.stop_drain(&all[0]).await.map_err(|error| failed(&error))?;
        for _ in 0..TICKS {
            tick(harness, "replicator").await?;
        }
        Ok(())
    })
}

/// Moves the copy on the last backend to the first one.
fn rebalance_to_the_front(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        harness.process.set_rebalance(RebalanceRules { strategy: Strategy::Pack, threshold: 1.0 });
        for _ in 0..TICKS {
            tick(harness, "rebalancer").await?;
        }
        Ok(())
    })
}

/// Writes off the first backend, as if it never came back.
fn write_off_the_first(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let (catalog, name) = (&harness.catalog, harness.environment.backends[0].name());
        catalog.begin_write_off(&name).await.map_err(|error| failed(&error))?;
        harness.process.identity.follow_states().await.map_err(|error| Error::Away(error.to_string()))?;
        while catalog.write_off_copies(&name, "").await.map_err(|error| failed(&error))?.is_some() {}
        while catalog.write_off_queues(&name).await.map_err(|error| failed(&error))? {}
        catalog.finish_removal(&name).await.map_err(|error| failed(&error))
    })
}

/// Returns the bodies that the keys may have.
type ExpectedFn = fn() -> Expected;

/// A process obtains ceilings before it uses a limited backend.
fn put_within_usage_limits(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let limits = UsageLimits::new(UsageTotals { requests: 1_000_000, ..UsageTotals::default() });
        for usage in harness.process.fleet.usages() {
            usage.set_policy(UsagePolicy { limits, ..UsagePolicy::default() });
        }
        harness.process.usage.start().await.map_err(|error| Error::Away(error.to_string()))?;
        put_new(harness).await
    })
}

/// A scenario with two copies of each object.
pub(super) const fn of_two(
    name: &'static str,
    [prepare, act]: [for<'a> fn(&'a Harness) -> Work<'a>; 2],
    change: ObjectChange,
) -> Scenario {
    let (after, before): (ExpectedFn, ExpectedFn) = match change {
        ObjectChange::Written => (new_body, no_body),
        ObjectChange::Replaced => (new_body, old_body),
        ObjectChange::Deleted => (no_body, old_body),
        ObjectChange::Unchanged => (old_body, old_body),
    };
    Scenario { name, heavy: false, dedup: false, put_bytes_max: LARGE, copies: 2, prepare, act, after, before }
}

/// What an acknowledged operation does to the object.
#[derive(Clone, Copy)]
pub(super) enum ObjectChange {
    Written,
    Replaced,
    Deleted,
    Unchanged,
}

fn no_body() -> Expected {
    holds("a", None)
}

fn old_body() -> Expected {
    holds("a", Some(b"old body"))
}

fn new_body() -> Expected {
    holds("a", Some(b"the new body"))
}

pub(super) const ALL: [Scenario; 10] = [
    of_two("put of two copies", [nothing, put_new], ObjectChange::Written),
    Scenario {
        put_bytes_max: 5,
        ..of_two("put of two copies through backend uploads", [nothing, put_new], ObjectChange::Written)
    },
    Scenario { dedup: true, ..of_two("overwrite of two copies", [put_old, put_new], ObjectChange::Replaced) },
    of_two("delete of two copies", [put_old, delete], ObjectChange::Deleted),
    of_two("lower and raise the factor", [put_old, lower_and_raise_the_factor], ObjectChange::Unchanged),
    of_two("drain and undrain", [put_old, drain_and_undrain], ObjectChange::Unchanged),
    of_two("become unhealthy and recover", [put_old, become_unhealthy_and_recover], ObjectChange::Unchanged),
    of_two("write-off", [put_old, write_off_the_first], ObjectChange::Unchanged),
    of_two("rebalance", [put_behind_the_first, rebalance_to_the_front], ObjectChange::Unchanged),
    of_two("put within usage limits", [put_old, put_within_usage_limits], ObjectChange::Replaced),
];
