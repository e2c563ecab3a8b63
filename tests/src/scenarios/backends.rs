//! Scenarios that change a backend under its copies: it is removed, or accepted as another store; and a copy of a
//! multipart object raises the factor of its parts.

use std::sync::Arc;

use s3o_catalog::{Acceptance, PlannedMark};
use s3o_engine::Error;
use s3o_model::clock::Clock as _;
use s3o_workers::{DrainProgress, RetirementService};

use super::copies::{ObjectChange, TICKS, failed, of_two, put_behind_the_first};
use super::expiry::{copy_to_b, tick};
use super::{Scenario, Work, holds, multipart_of_one, put_old};
use crate::harness::{Expected, Harness};

/// Removes the first backend, which holds nothing but s3o's own objects.
fn remove_the_first(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let process = &harness.process;
        let service = RetirementService {
            catalog: process.catalog.clone(),
            fleet: process.fleet.clone(),
            identity: process.identity.clone(),
            progress: DrainProgress::default(),
            drain_wakeup: Arc::default(),
            clock: harness.clock.clone(),
        };
        let name = harness.environment.backends[0].name();
        service.remove(name.as_str()).await.map_err(|refused| Error::Away(format!("{refused:?}")))
    })
}

/// An operator accepts the store of the first backend: its copies do not count until they are found there.
fn accept_the_first(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        let (catalog, name) = (&harness.catalog, harness.environment.backends[0].name());
        let known = catalog.known_backend(&name).await.map_err(|error| failed(&error))?;
        let sequence = known.mark_sequence.max(known.next_sequence) + 1;
        let next = PlannedMark { mark: "accepted".to_owned(), sequence };
        let acceptance = Acceptance { expected: &known, hash: "found", next: &next, upto: harness.clock.now() };
        catalog.accept_mark(&name, acceptance).await.map_err(|error| failed(&error))?;
        for _ in 0..TICKS {
            tick(harness, "replicator").await?;
            tick(harness, "over_replication").await?;
        }
        Ok(())
    })
}

async fn change_factor_of_new_writes(harness: &Harness, factor: usize) -> Result<(), Error> {
    harness.catalog.set_factors(factor, &[]).await.map(drop).map_err(|error| failed(&error))
}

/// A multipart object with one copy of its part.
fn put_joined_once(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        change_factor_of_new_writes(harness, 1).await?;
        multipart_of_one(harness).await?;
        for _ in 0..TICKS {
            tick(harness, "replicator").await?;
            tick(harness, "over_replication").await?;
        }
        Ok(())
    })
}

/// The copy of the object raises the factor of the part, which then gets a second copy.
fn copy_joined_with_more_copies(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        change_factor_of_new_writes(harness, 2).await?;
        copy_to_b(harness, None).await?;
        for _ in 0..TICKS {
            tick(harness, "replicator").await?;
        }
        Ok(())
    })
}

fn both() -> Expected {
    [holds("a", Some(b"tail")), holds("b", Some(b"tail"))].into_iter().flatten().collect()
}

fn one() -> Expected {
    [holds("a", Some(b"tail")), holds("b", None)].into_iter().flatten().collect()
}

pub(super) const ALL: [Scenario; 3] = [
    of_two("remove a backend", [put_behind_the_first, remove_the_first], ObjectChange::Unchanged),
    of_two("accept a backend", [put_old, accept_the_first], ObjectChange::Unchanged),
    Scenario {
        after: both,
        before: one,
        ..of_two(
            "copy of joined content with more copies",
            [put_joined_once, copy_joined_with_more_copies],
            ObjectChange::Unchanged,
        )
    },
];
