//! When deletes begin after an attach, and what other catalogs and instances are told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use s3o_backend::identity::{IDENTITY_KEY, Identity as Carried};
use s3o_backend::layers::Flaky;
use s3o_catalog::conformance::scene::Scene;
use s3o_model::clock::{Clock as _, Timestamp};

use super::super::IdentitySettings;
use super::{Instance, MINUTE, ReadOnly, carried, disk, memory, raise};
use crate::testing::scene;

#[tokio::test]
async fn deletes_begin_some_time_after_a_start_if_its_raise_still_stands() {
    let (scene, store) = (scene(), memory());
    assert!(Instance::attached(&scene, "a", &store).await.deletes().await, "nothing was ever written there");
    let settings = IdentitySettings {
        max_age: HashMap::from([(disk(), Duration::from_hours(1))]),
        delete_delay: HashMap::from([(disk(), 2 * MINUTE)]),
        ..IdentitySettings::default()
    };
    let started = Instance::with(&scene, "a", vec![store.clone()], settings);
    assert!(started.identity.attach().await);
    assert!(!started.deletes().await);
    assert!(started.identity.permits(started.backend()).await.expect("compared"), "it is read all the same");
    scene.clock.advance(MINUTE);
    assert!(!started.deletes().await);
    // Another catalog writes a mark of its own meanwhile: the check from the start does not count any more.
    let stranger = Carried { mark: "unheard".to_owned(), sequence: 9, ..carried(&store) };
    store.plant(IDENTITY_KEY, stranger.encode());
    scene.clock.advance(MINUTE);
    assert!(!started.deletes().await);
    assert!(started.frozen().is_some());
}

/// An operator sets the clock back by an hour.
fn set_back(scene: &Scene) {
    scene.clock.set(Timestamp::from_millis(scene.clock.now().millis() - 3_600_000));
}

#[tokio::test]
async fn a_clock_that_is_set_back_neither_delays_deletes_nor_makes_checks_young() {
    let (scene, store) = (scene(), memory());
    Instance::attached(&scene, "a", &store).await;
    let settings = IdentitySettings {
        max_age: HashMap::from([(disk(), MINUTE)]),
        delete_delay: HashMap::from([(disk(), 2 * MINUTE)]),
        ..IdentitySettings::default()
    };
    let started = Instance::with(&scene, "a", vec![store.clone()], settings);
    assert!(started.identity.attach().await);
    set_back(&scene);
    scene.clock.advance(2 * MINUTE);
    assert!(started.deletes().await, "two minutes have passed");
    set_back(&scene);
    let stranger = Carried { mark: "unheard".to_owned(), sequence: 9, ..carried(&store) };
    store.plant(IDENTITY_KEY, stranger.encode());
    scene.clock.advance(MINUTE);
    assert!(!started.deletes().await, "the last check is a minute old");
}

#[tokio::test]
async fn deletes_wait_for_a_raise_where_the_start_made_none() {
    let (scene, store) = (scene(), memory());
    let first = Instance::attached(&scene, "a", &store).await;
    let started = |host| {
        let settings = IdentitySettings {
            delete_delay: HashMap::from([(disk(), MINUTE)]),
            raise_age: 5 * MINUTE,
            ..IdentitySettings::default()
        };
        Instance::with(&scene, host, vec![store.clone()], settings)
    };
    let second = started("b");
    assert!(second.identity.attach().await);
    scene.clock.advance(2 * MINUTE);
    assert_eq!(carried(&store).sequence, 1);
    assert!(!second.deletes().await, "a copy of the catalog may know this mark");

    // The raise of any instance counts, and the delay begins with it.
    raise(&first).await;
    assert!(!second.deletes().await);
    scene.clock.advance(MINUTE);
    assert!(second.deletes().await);

    // An instance that waits raises the mark itself once it is old enough.
    let third = started("c");
    assert!(third.identity.attach().await);
    scene.clock.advance(5 * MINUTE);
    assert!(!third.deletes().await && carried(&store).sequence == 3);
    scene.clock.advance(MINUTE);
    assert!(third.deletes().await);
}

#[tokio::test]
async fn a_mark_is_contested_again_until_that_succeeds() {
    let (one, store) = (scene(), memory());
    let flaky = Arc::new(Flaky::new(store.clone()));
    let first = Instance::new(&one, "a", vec![flaky.clone()]);
    assert!(first.identity.attach().await);
    let stranger = Carried { mark: "unheard".to_owned(), sequence: 9, ..carried(&store) };
    store.plant(IDENTITY_KEY, stranger.encode());
    flaky.set_weather(Some(Arc::new(ReadOnly)));
    assert!(!first.deletes().await && !carried(&store).contested);
    flaky.set_weather(None);
    assert!(first.identity.attach().await);
    assert!(carried(&store).contested);
}

#[tokio::test]
async fn nothing_is_accepted_before_other_instances_could_answer() {
    let (scene, store) = (scene(), memory());
    Instance::attached(&scene, "a", &store).await;
    let settings = IdentitySettings { answer_wait: Duration::from_secs(10), ..IdentitySettings::default() };
    let wrong = Instance::with(&scene, "b", vec![memory()], settings);
    assert!(wrong.identity.attach().await);
    let hash = wrong.shown(None).await.expect("shown").hash;
    assert!(wrong.shown(Some(&hash)).await.is_some(), "refused");
    scene.clock.advance(Duration::from_secs(10));
    assert!(wrong.shown(Some(&hash)).await.is_none(), "accepted");
}

#[tokio::test]
async fn a_start_raises_no_mark_that_another_instance_has_just_confirmed() {
    let (scene, store) = (scene(), memory());
    Instance::attached(&scene, "a", &store).await;
    let settings = || IdentitySettings { raise_age: 5 * MINUTE, ..IdentitySettings::default() };
    for (wait, sequence) in [(MINUTE, 1), (5 * MINUTE, 2)] {
        scene.clock.advance(wait);
        assert!(Instance::with(&scene, "b", vec![store.clone()], settings()).identity.attach().await);
        assert_eq!(carried(&store).sequence, sequence);
    }
}
