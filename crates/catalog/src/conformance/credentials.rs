//! Tests of generated credentials.

use futures_util::future::join_all;

use super::fixture::Fixture;

/// Every later caller gets the document that was stored first.
pub async fn first_credentials_are_kept(fixture: &Fixture) {
    assert_eq!(fixture.catalog.shared_credentials("first").await.expect("stored"), "first");
    assert_eq!(fixture.catalog.shared_credentials("second").await.expect("stored"), "first");
}

/// Eight callers offer different documents at the same time.
pub async fn concurrent_callers_share_one_document(fixture: &Fixture) {
    let offers: Vec<String> = (0..8).map(|number| format!("offer-{number}")).collect();
    let calls = offers.iter().map(|offer| fixture.catalog.shared_credentials(offer));
    let answers: Vec<String> = join_all(calls).await.into_iter().map(|answer| answer.expect("stored")).collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]) && offers.contains(&answers[0]), "{answers:?}");
}
