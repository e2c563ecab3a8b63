//! Tests of deletions that a worker started and did not finish.

use std::time::Duration;

use s3o_model::ids::ClaimToken;

use super::fixture::Fixture;
use crate::params;

const STUCK: Duration = Duration::from_hours(2);

/// Sets every object to the state in which a worker deletes it.
async fn begin(fixture: &Fixture) -> ClaimToken {
    const SQL: &str = "UPDATE objects SET deletion_status = 'DELETION_IN_PROGRESS', deletion_initiated_at = :now, \
         token = $1 WHERE deletion_status = 'NOT_EXPIRED'";
    let token = fixture.token();
    fixture.change(SQL, params![token]).await;
    token
}

async fn reset(fixture: &Fixture, limit: usize) -> Vec<(String, String)> {
    let reset = fixture.catalog.reset_stuck(STUCK, limit).await.expect("a query");
    reset.into_iter().map(|object| (object.bucket, object.key)).collect()
}

async fn in_deletion(fixture: &Fixture) -> i64 {
    fixture.number("SELECT count(*) FROM objects WHERE deletion_status <> 'NOT_EXPIRED' OR token IS NOT NULL").await
}

/// The object is returned by the first reset only.
pub async fn stuck_deletion_is_reset_once(fixture: &Fixture) {
    let bucket = fixture.bucket("stuck").await;
    fixture.put(bucket, "a", 1).await;
    begin(fixture).await;
    fixture.clock.advance(STUCK);
    assert_eq!(reset(fixture, 9).await, [("stuck".to_owned(), "a".to_owned())]);
    assert_eq!((in_deletion(fixture).await, reset(fixture, 9).await), (0, vec![]));
    assert_eq!(fixture.number("SELECT count(*) FROM objects WHERE deletion_initiated_at IS NULL").await, 1);
}

/// It is a millisecond younger than the limit.
pub async fn young_deletion_is_not_reset(fixture: &Fixture) {
    let bucket = fixture.bucket("young").await;
    fixture.put(bucket, "a", 1).await;
    begin(fixture).await;
    fixture.wait_almost(STUCK);
    assert_eq!((reset(fixture, 9).await, in_deletion(fixture).await), (vec![], 1));
    fixture.clock.advance(STUCK);
    reset(fixture, 9).await;
}

/// One call resets at most `limit` objects.
pub async fn resets_are_bounded(fixture: &Fixture) {
    let bucket = fixture.bucket("many").await;
    for key in ["a", "b", "c"] {
        fixture.put(bucket, key, 1).await;
    }
    begin(fixture).await;
    fixture.clock.advance(STUCK);
    assert_eq!((reset(fixture, 2).await.len(), in_deletion(fixture).await), (2, 1));
    assert_eq!((reset(fixture, 2).await.len(), in_deletion(fixture).await), (1, 0));
}
