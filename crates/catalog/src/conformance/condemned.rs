//! Tests of the observer that is notified of condemned content.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_model::etag::ETag;
use s3o_model::ids::ContentId;

use super::fixture::{ContentStanding, Fixture, key};
use super::refused;
use crate::{CondemnedObserver, Verdict};

/// Records every notification.
#[derive(Default)]
struct CondemnedRecorder(Mutex<Vec<Vec<ContentId>>>);

impl CondemnedObserver for CondemnedRecorder {
    fn condemned(&self, contents: &[ContentId]) {
        self.0.lock().push(contents.to_vec());
    }
}

impl CondemnedRecorder {
    fn observing(fixture: &Fixture) -> Arc<Self> {
        let recorder = Arc::new(Self::default());
        fixture.catalog.observe_condemned(recorder.clone());
        recorder
    }

    fn take(&self) -> Vec<Vec<ContentId>> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// Overwrites and deletes notify it; a first write does not.
pub async fn observer_is_notified_of_condemned_content(fixture: &Fixture) {
    let bucket = fixture.bucket("condemned").await;
    let recorder = CondemnedRecorder::observing(fixture);
    let first = fixture.put(bucket, "a", 3).await;
    assert_eq!(recorder.take(), Vec::<Vec<ContentId>>::new(), "a first write displaces nothing");
    let second = fixture.put(bucket, "a", 3).await;
    assert_eq!(recorder.take(), [[first]]);
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!(recorder.take(), [[second]]);
}

/// Deleting one of two objects with the same content condemns nothing.
pub async fn observer_is_not_notified_of_referenced_content(fixture: &Fixture) {
    let bucket = fixture.bucket("stays").await;
    let recorder = CondemnedRecorder::observing(fixture);
    let content = fixture.put(bucket, "a", 3).await;
    fixture.copy((content, 3), bucket, "b").await.expect("copied");
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!((recorder.take(), fixture.standing(content).await), (Vec::new(), ContentStanding::Live(1)));
    assert!(fixture.delete(bucket, "b").await);
    assert_eq!(recorder.take(), [[content]]);
}

/// One `delete_objects` call is one notification.
pub async fn observer_is_notified_once_per_batch(fixture: &Fixture) {
    let bucket = fixture.bucket("batch").await;
    let recorder = CondemnedRecorder::observing(fixture);
    let mut contents = BTreeSet::new();
    let mut targets = Vec::new();
    for name in ["a", "b", "c"] {
        contents.insert(fixture.put(bucket, name, 1).await);
        targets.push((key(name), None));
    }
    fixture.catalog.delete_objects(bucket, &targets, fixture.token()).await.expect("deleted");
    let notifications = recorder.take();
    assert_eq!(notifications.len(), 1);
    assert_eq!(notifications[0].iter().copied().collect::<BTreeSet<_>>(), contents);
}

/// Joined content is notified when it is condemned, its pieces when `expand_joined` releases them.
pub async fn observer_is_notified_of_pieces_when_released(fixture: &Fixture) {
    let bucket = fixture.bucket("pieces").await;
    let recorder = CondemnedRecorder::observing(fixture);
    let upload = fixture.upload(bucket, "a").await;
    let part = fixture.part(upload, 1, 3).await;
    let joined = fixture.complete(upload, &[part]).await.expect("completed");
    assert!(fixture.delete(bucket, "a").await);
    assert_eq!(recorder.take(), [[joined]]);
    fixture.catalog.expand_joined(Duration::ZERO).await.expect("a step");
    assert_eq!(recorder.take(), [[part.1]]);
}

/// A delete whose precondition fails is not committed.
pub async fn failed_unit_notifies_no_observer(fixture: &Fixture) {
    let bucket = fixture.bucket("failed").await;
    let recorder = CondemnedRecorder::observing(fixture);
    fixture.put(bucket, "a", 3).await;
    let other = ETag::from_text("another");
    let outcome = fixture.delete_if(bucket, "a", Some(&other)).await;
    refused(outcome, Verdict::PreconditionFailed);
    assert_eq!(recorder.take(), Vec::<Vec<ContentId>>::new());
}
