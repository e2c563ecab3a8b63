//! Whoever listens hears of every content that was condemned, and of no other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use s3o_model::etag::ETag;
use s3o_model::ids::ContentId;

use super::refused;
use super::scene::{Scene, Standing, key};
use crate::{CondemnedObserver, Contents as _, Objects as _, Verdict};

/// Keeps what it hears, one entry a time.
#[derive(Default)]
struct Heard(Mutex<Vec<Vec<ContentId>>>);

impl CondemnedObserver for Heard {
    fn condemned(&self, contents: &[ContentId]) {
        self.0.lock().push(contents.to_vec());
    }
}

impl Heard {
    fn by(scene: &Scene) -> Arc<Self> {
        let heard = Arc::new(Self::default());
        scene.catalog.tell_of_condemned(heard.clone());
        heard
    }

    fn take(&self) -> Vec<Vec<ContentId>> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// Overwrites and deletes tell of what they condemned.
pub async fn what_was_condemned_is_told(scene: &Scene) {
    let bucket = scene.bucket("told").await;
    let heard = Heard::by(scene);
    let first = scene.put(bucket, "a", 3).await;
    assert_eq!(heard.take(), Vec::<Vec<ContentId>>::new(), "a first write displaces nothing");
    let second = scene.put(bucket, "a", 3).await;
    assert_eq!(heard.take(), [[first]]);
    assert!(scene.delete(bucket, "a").await);
    assert_eq!(heard.take(), [[second]]);
}

/// Content that something still refers to is not told of.
pub async fn what_stays_is_not_told(scene: &Scene) {
    let bucket = scene.bucket("stays").await;
    let heard = Heard::by(scene);
    let content = scene.put(bucket, "a", 3).await;
    scene.copy((content, 3), bucket, "b").await.expect("copied");
    assert!(scene.delete(bucket, "a").await);
    assert_eq!((heard.take(), scene.standing(content).await), (Vec::new(), Standing::Live(1)));
    assert!(scene.delete(bucket, "b").await);
    assert_eq!(heard.take(), [[content]]);
}

/// A batch of deletes is told of as one.
pub async fn a_batch_is_told_at_once(scene: &Scene) {
    let bucket = scene.bucket("batch").await;
    let heard = Heard::by(scene);
    let mut contents = BTreeSet::new();
    let mut targets = Vec::new();
    for name in ["a", "b", "c"] {
        contents.insert(scene.put(bucket, name, 1).await);
        targets.push((key(name), None));
    }
    scene.catalog.delete_objects(bucket, &targets, scene.token()).await.expect("deleted");
    let told = heard.take();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].iter().copied().collect::<BTreeSet<_>>(), contents);
}

/// Joined content is told of when it is condemned, its pieces when they are let go of.
pub async fn pieces_are_told_when_they_go(scene: &Scene) {
    let bucket = scene.bucket("pieces").await;
    let heard = Heard::by(scene);
    let upload = scene.upload(bucket, "a").await;
    let part = scene.part(upload, 1, 3).await;
    let joined = scene.complete(upload, &[part]).await.expect("completed");
    assert!(scene.delete(bucket, "a").await);
    assert_eq!(heard.take(), [[joined]]);
    scene.catalog.expand_joined(Duration::ZERO).await.expect("a step");
    assert_eq!(heard.take(), [[part.1]]);
}

/// What was not committed is not told of.
pub async fn a_unit_that_failed_tells_nothing(scene: &Scene) {
    let bucket = scene.bucket("failed").await;
    let heard = Heard::by(scene);
    scene.put(bucket, "a", 3).await;
    let other = ETag::from_text("another");
    let outcome = scene.catalog.delete_object(bucket, &key("a"), Some(&other), scene.token()).await;
    refused(outcome, Verdict::PreconditionFailed);
    assert_eq!(heard.take(), Vec::<Vec<ContentId>>::new());
}
