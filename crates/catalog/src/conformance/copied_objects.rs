//! Tests of objects that are copied: copies share the bytes of one content.

use super::fixture::{ContentStanding, Fixture};
use super::refused;
use crate::Verdict;

/// This holds across buckets.
pub async fn copies_share_bytes_until_the_last_is_deleted(fixture: &Fixture) {
    let (one, two) = (fixture.bucket("one").await, fixture.bucket("two").await);
    let content = fixture.put(one, "a", 5).await;
    let committed = fixture.copy((content, 5), two, "b").await.expect("copied");
    assert!(!committed.displaced);
    assert_eq!((fixture.standing(content).await, fixture.usage().await), (ContentStanding::Live(2), (5, 0, 0)));
    assert!(fixture.delete(one, "a").await);
    assert_eq!((fixture.standing(content).await, fixture.queued().await), (ContentStanding::Live(1), vec![]));
    assert!(fixture.resolve("two", "b").await.whole.is_some());
    assert!(fixture.delete(two, "b").await);
    assert_eq!((fixture.standing(content).await, fixture.queued().await.len()), (ContentStanding::Condemned, 1));
}

/// The same holds for a key that already has the content.
pub async fn copy_onto_itself_keeps_the_reference_count(fixture: &Fixture) {
    let bucket = fixture.bucket("self").await;
    let content = fixture.put(bucket, "a", 5).await;
    for _ in 0..3 {
        assert!(fixture.copy((content, 5), bucket, "a").await.expect("copied").displaced);
        assert_eq!(fixture.standing(content).await, ContentStanding::Live(1));
    }
    fixture.copy((content, 5), bucket, "b").await.expect("copied");
    fixture.copy((content, 5), bucket, "b").await.expect("copied");
    assert_eq!((fixture.standing(content).await, fixture.queued().await), (ContentStanding::Live(2), vec![]));
}

/// The quotas move as with a put.
pub async fn copy_condemns_the_displaced_content(fixture: &Fixture) {
    let bucket = fixture.bucket("copy").await;
    let (content, displaced) = (fixture.put(bucket, "a", 5).await, fixture.put(bucket, "b", 6).await);
    assert!(fixture.copy((content, 5), bucket, "b").await.expect("copied").displaced);
    assert_eq!(
        (fixture.standing(content).await, fixture.standing(displaced).await),
        (ContentStanding::Live(2), ContentStanding::Condemned)
    );
    assert_eq!(fixture.usage().await, (5, 6, 0));
}

/// The caller gets `ResolveAgain`, also once the row of the content is deleted.
pub async fn copy_of_condemned_content_is_refused(fixture: &Fixture) {
    let bucket = fixture.bucket("copy").await;
    let content = fixture.put(bucket, "a", 5).await;
    assert!(fixture.delete(bucket, "a").await);
    refused(fixture.copy((content, 5), bucket, "b").await, Verdict::ResolveAgain);
    fixture.clean_up().await;
    assert_eq!(fixture.standing(content).await, ContentStanding::Deleted);
    refused(fixture.copy((content, 5), bucket, "b").await, Verdict::ResolveAgain);
    assert_eq!(fixture.resolve("copy", "b").await.object, None);
}
