//! Scenarios with two copies of each object on three backends: writes, a changed factor, and a drain.

use s3o_engine::Error;

use super::expiry::tick;
use super::{LARGE, Scenario, Work, delete, holds, nothing, put_new, put_old};
use crate::harness::Harness;

/// Ticks that a change of the factor needs: a page of the review, its end, and the work.
const TICKS: usize = 4;

fn failed(error: &s3o_catalog::Error) -> Error {
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

pub(super) const ALL: [Scenario; 6] = [
    Scenario {
        name: "put of two copies",
        heavy: false,
        dedup: false,
        put_bytes_max: LARGE,
        copies: 2,
        prepare: nothing,
        act: put_new,
        after: || holds("a", Some(b"the new body")),
        before: || holds("a", None),
    },
    Scenario {
        name: "put of two copies through backend uploads",
        heavy: false,
        dedup: false,
        put_bytes_max: 5,
        copies: 2,
        prepare: nothing,
        act: put_new,
        after: || holds("a", Some(b"the new body")),
        before: || holds("a", None),
    },
    Scenario {
        name: "overwrite of two copies",
        heavy: false,
        dedup: true,
        put_bytes_max: LARGE,
        copies: 2,
        prepare: put_old,
        act: put_new,
        after: || holds("a", Some(b"the new body")),
        before: || holds("a", Some(b"old body")),
    },
    Scenario {
        name: "delete of two copies",
        heavy: false,
        dedup: false,
        put_bytes_max: LARGE,
        copies: 2,
        prepare: put_old,
        act: delete,
        after: || holds("a", None),
        before: || holds("a", Some(b"old body")),
    },
    Scenario {
        name: "lower and raise the factor",
        heavy: false,
        dedup: false,
        put_bytes_max: LARGE,
        copies: 2,
        prepare: put_old,
        act: lower_and_raise_the_factor,
        after: || holds("a", Some(b"old body")),
        before: || holds("a", Some(b"old body")),
    },
    Scenario {
        name: "drain and undrain",
        heavy: false,
        dedup: false,
        put_bytes_max: LARGE,
        copies: 2,
        prepare: put_old,
        act: drain_and_undrain,
        after: || holds("a", Some(b"old body")),
        before: || holds("a", Some(b"old body")),
    },
];
