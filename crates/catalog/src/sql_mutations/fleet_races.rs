//! Guards of removals of backends and of the review that lie between two units: one of them is paused or overtaken.

use std::sync::Arc;

use async_trait::async_trait;

use super::Cut::Words;
use super::paused::{pause_after, race};
use super::{Damage, damage_if, guards};
use crate::conformance::fixture::{Fixture, backend};
use crate::unit::{Answer, Unit};
use crate::{Catalog, Driver, DriverLayer, Error};

const HELD: &str = "a backend is removed while a write is announced there";
const TOO_FEW: &str = "two drains leave fewer backends than the factor";
const NOT_NOTED: &str = "a content lacks a copy, and no worker knows";

guards! { [postgres]
    a_removal_locks_then_counts in a_removal_races_with_a_write: "begin_removal",
        [Words("WHERE name = $1 /*lock*/", "WHERE name = $1")], [HELD];
    one_drain_at_a_time_counts_what_remains in two_drains_race: "start_drain",
        [Words("FROM cluster /*lock*/", "FROM cluster")], [TOO_FEW];
    a_page_of_the_review_delays_its_restart in a_page_races_with_a_factor: "review_copies",
        [Words("position = $1 /*lock*/", "position = $1")], [NOT_NOTED];
    a_page_of_the_review_ends_with_its_restart in the_review_is_restarted_before_a_page: "review_copies",
        [Words(" WHERE position = $1", " WHERE position = position OR position = $1")], [NOT_NOTED];
}

/// The write is announced after the removal began, and before it counts.
async fn a_removal_races_with_a_write(fixture: &Fixture) -> Damage {
    let bucket = fixture.bucket("data").await;
    let (paused, intent) = (pause_after(fixture, "stage", "FROM backends").await, fixture.intent(bucket, "a", 5));
    let disk = backend("disk");
    let (staged, begun) = race(&paused, paused.try_stage(&intent), fixture.catalog.begin_removal(&disk)).await;
    damage_if(staged.is_ok() && begun.is_ok(), HELD)
}

/// Each drain alone leaves as many backends as the factor.
async fn two_drains_race(fixture: &Fixture) -> Damage {
    fixture.bucket_with_factor(2).await;
    fixture.catalog.cluster_id("ours").await.expect("a row of the cluster");
    let all = ["disk", "east", "west"].map(backend);
    fixture.set_factors(1).await;
    fixture.set_factors(2).await;
    let paused = pause_after(fixture, "start_drain", "SELECT 1 WHERE").await;
    let (one, other) =
        race(&paused, paused.catalog.start_drain(&all[0], &all), fixture.catalog.start_drain(&all[1], &all)).await;
    damage_if(one.is_ok() && other.is_ok(), TOO_FEW)
}

/// Two contents of factor 1, and a review that has just begun.
async fn review_of_two(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    for name in ["a", "b"] {
        fixture.put(bucket, name, 5).await;
    }
    fixture.catalog.start_copy_review().await.expect("started");
}

/// Ends the review; both contents lack a copy by then.
async fn not_all_noted(fixture: &Fixture) -> Damage {
    fixture.review().await;
    damage_if(fixture.copy_work(false).await.len() < 2, NOT_NOTED)
}

/// The factor is raised after the first page was compared with the old one.
async fn a_page_races_with_a_factor(fixture: &Fixture) -> Damage {
    review_of_two(fixture).await;
    let paused = pause_after(fixture, "review_copies", "INSERT INTO copy_work").await;
    let (reviewed, raised) =
        race(&paused, paused.catalog.review_copies(1, 1000), fixture.catalog.set_factors(2, &[])).await;
    assert!(reviewed.expect("reviewed") && raised.expect("raised"));
    not_all_noted(fixture).await
}

/// Raises the factor between the query for a page and its unit.
struct RaisedFactor {
    inner: Arc<dyn Driver>,
}

#[async_trait]
impl DriverLayer for RaisedFactor {
    fn inner(&self) -> &dyn Driver {
        self.inner.as_ref()
    }

    async fn on_write(&self, unit: Unit) -> Result<Vec<Answer>, Error> {
        if unit.name == "review_copies" {
            Catalog::new(Arc::clone(&self.inner)).set_factors(2, &[]).await?;
        }
        self.inner.write(unit).await
    }
}

async fn the_review_is_restarted_before_a_page(fixture: &Fixture) -> Damage {
    review_of_two(fixture).await;
    assert!(fixture.catalog.review_copies(1, 1000).await.expect("reviewed"));
    let overtaken = fixture.with_driver(|inner| Arc::new(RaisedFactor { inner }));
    assert!(overtaken.catalog.review_copies(1, 1000).await.expect("an answer"));
    not_all_noted(fixture).await
}
