//! Prefixes that are deleted to trash, restored and purged, and trash whose retention ends.

use std::time::Duration;

use s3o_catalog::PrefixOperationKind;
use s3o_engine::{Error, PrefixRefused, PrefixRequest};

use super::expiry::tick;
use super::{LARGE, Scenario, Work, holds, put_two};
use crate::harness::{Expected, Harness, bucket};

const RETENTION: Duration = Duration::from_hours(168);

/// Runs an operation on all keys.
async fn run(harness: &Harness, kind: PrefixOperationKind) -> Result<(), Error> {
    let request = PrefixRequest { kind, bucket: bucket(), prefix: String::new(), retention: RETENTION };
    match harness.engine.run_prefix_operation(request, |_| {}).await {
        Ok(_) => Ok(()),
        Err(PrefixRefused::Busy(_)) => Err(Error::Conflict),
        Err(PrefixRefused::Interrupted(why)) => Err(Error::Away(why)),
        Err(PrefixRefused::Failed(error)) => Err(error),
    }
}

fn rm(harness: &Harness) -> Work<'_> {
    Box::pin(run(harness, PrefixOperationKind::Rm))
}

fn put_and_rm(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        put_two(harness).await?;
        rm(harness).await
    })
}

fn restore(harness: &Harness) -> Work<'_> {
    Box::pin(run(harness, PrefixOperationKind::Restore))
}

fn purge(harness: &Harness) -> Work<'_> {
    Box::pin(run(harness, PrefixOperationKind::Purge))
}

fn end_of_retention(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        harness.clock.advance(RETENTION);
        tick(harness, "expiry").await
    })
}

fn absent() -> Expected {
    Expected::from_iter(holds("a", None).into_iter().chain(holds("b", None)))
}

fn present() -> Expected {
    Expected::from_iter(holds("a", Some(b"first body")).into_iter().chain(holds("b", Some(b"second body"))))
}

const fn scenario(
    name: &'static str,
    works: [for<'a> fn(&'a Harness) -> Work<'a>; 2],
    states: [fn() -> Expected; 2],
) -> Scenario {
    let ([prepare, act], [before, after]) = (works, states);
    Scenario { name, heavy: false, dedup: false, put_bytes_max: LARGE, copies: 1, prepare, act, after, before }
}

pub(super) const ALL: [Scenario; 4] = [
    scenario("rm of a prefix", [put_two, rm], [present, absent]),
    scenario("restore of a prefix", [put_and_rm, restore], [absent, present]),
    scenario("purge of a prefix", [put_and_rm, purge], [absent, absent]),
    scenario("end of the retention in trash", [put_and_rm, end_of_retention], [absent, absent]),
];
