//! Facts about generated credentials.

use futures_util::future::join_all;

use super::scene::Scene;
use crate::SharedCredentials;

/// The first document that is offered is stored and returned to every later caller.
pub async fn the_first_credentials_are_kept(scene: &Scene) {
    assert_eq!(scene.catalog.shared_credentials("first").await.expect("stored"), "first");
    assert_eq!(scene.catalog.shared_credentials("second").await.expect("stored"), "first");
}

/// Callers at the same time get the same document.
pub async fn concurrent_callers_share_one_document(scene: &Scene) {
    let offers: Vec<String> = (0..8).map(|number| format!("offer-{number}")).collect();
    let calls = offers.iter().map(|offer| scene.catalog.shared_credentials(offer));
    let answers: Vec<String> = join_all(calls).await.into_iter().map(|answer| answer.expect("stored")).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]) && offers.contains(&answers[0]), "{answers:?}");
}
