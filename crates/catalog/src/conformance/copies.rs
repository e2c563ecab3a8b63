//! Facts about copies: looked at before a write joins content, and suspect once they were found bad.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use s3o_model::content::Location;
use s3o_model::ids::{BucketId, ContentId};
use s3o_model::intent::Intent;
use s3o_model::proof::Proof;

use super::books;
use super::races::{ROUNDS, both, nothing_leaks};
use super::scene::sharing::{BODY_BYTES, digest};
use super::scene::{LEASE, Scene, Standing, announced, backend};
use crate::{CommitPut, Copies, CopyProver, Intents, Landed, Objects, PartSource, Uploads};

/// Says what it was told to say of the copies on each backend, and counts how often it was asked.
#[derive(Default)]
struct Looks(Mutex<(HashMap<String, Proof>, usize)>);

#[async_trait]
impl CopyProver for Looks {
    async fn prove(&self, copy: &Location, size_bytes: u64) -> Proof {
        assert_eq!(size_bytes, BODY_BYTES);
        let mut state = self.0.lock();
        state.1 += 1;
        state.0.get(&copy.backend.to_string()).copied().unwrap_or(Proof::Good)
    }
}

impl Looks {
    fn by(scene: &Scene) -> Arc<Self> {
        let looks = Arc::new(Self::default());
        scene.catalog.prove_by(looks.clone());
        looks
    }

    fn find(&self, place: &str, proof: Proof) {
        self.0.lock().0.insert(place.to_owned(), proof);
    }

    /// How often somebody looked since the last time.
    fn taken(&self) -> usize {
        std::mem::take(&mut self.0.lock().1)
    }
}

async fn copy_of(scene: &Scene, content: ContentId) -> Location {
    Location { backend: backend("disk"), physical_key: scene.places(content).await.remove(0).0 }
}

async fn states(scene: &Scene, content: ContentId) -> Vec<String> {
    scene.places(content).await.into_iter().map(|(_, state)| state).collect()
}

/// A suspicion is told of once, moves nothing, and the copy is still read where there is no better one.
pub async fn a_copy_becomes_suspect_once(scene: &Scene) {
    let bucket = scene.bucket("bad").await;
    let content = scene.share(bucket, "a", 1).await;
    let copy = copy_of(scene, content).await;
    assert!(scene.catalog.suspect(content, &copy).await.expect("called"));
    assert!(!scene.catalog.suspect(content, &copy).await.expect("called before"));
    assert_eq!((states(scene, content).await, scene.booked().await), (vec!["suspect".to_owned()], (5, 0, 0)));
    let found = scene.resolve("bad", "a").await.whole.expect("whole");
    assert_eq!(found.locations, [copy]);
}

/// A reader who comes late finds another copy in the place of the one that it read, or none, and calls nothing suspect.
pub async fn only_the_copy_that_was_read_is_suspect(scene: &Scene) {
    let (bucket, other) = (scene.bucket("late").await, scene.bucket("other").await);
    let content = scene.share(bucket, "a", 1).await;
    let read = copy_of(scene, content).await;
    assert!(scene.catalog.suspect(content, &read).await.expect("called"));
    scene.share(bucket, "b", 1).await;
    assert!(!scene.catalog.suspect(content, &read).await.expect("replaced"));
    let now = copy_of(scene, content).await;
    let elsewhere = Location { backend: backend("cloud"), ..now.clone() };
    assert!(!scene.catalog.suspect(content, &elsewhere).await.expect("not there"));
    let apart = scene.share(other, "a", 1).await;
    assert!(!scene.catalog.suspect(apart, &now).await.expect("not its copy"));
    assert_eq!(
        (states(scene, content).await, states(scene, apart).await),
        (vec!["present".into()], vec!["present".into()])
    );
    assert!(scene.delete(bucket, "a").await && scene.delete(bucket, "b").await);
    assert!(!scene.catalog.suspect(content, &now).await.expect("gone"));
    assert_eq!(scene.standing(content).await, Standing::Condemned);
}

/// Nobody looks at anything for content that is new; one look is enough for content that is there.
pub async fn known_content_is_looked_at_once(scene: &Scene) {
    let (bucket, looks) = (scene.bucket("good").await, Looks::by(scene));
    let content = scene.share(bucket, "a", 1).await;
    assert_eq!(scene.catalog.pin(&scene.pin_of(bucket, "b", 2)).await.expect("a look"), None);
    assert_eq!(looks.taken(), 0);
    assert_eq!(scene.share(bucket, "b", 1).await, content);
    assert_eq!(looks.taken(), 1);
    let (pin, _) = scene.pinned(bucket, "c", 1).await;
    scene.commit_pinned(&pin, content).await.expect("committed");
    assert_eq!((looks.taken(), scene.standing(content).await), (1, Standing::Live(3)));
}

/// Content whose copy is found bad is not held, and gets the copy of the next write, whoever finishes it; all its names
/// have it then.
pub async fn a_bad_copy_is_replaced_by_the_next_write(scene: &Scene) {
    let (bucket, looks) = (scene.bucket("bad").await, Looks::by(scene));
    let content = scene.share(bucket, "a", 1).await;
    for (round, name) in ["b", "a", "c"].into_iter().enumerate() {
        let old = copy_of(scene, content).await.physical_key;
        looks.find("disk", Proof::Bad);
        assert_eq!(scene.catalog.pin(&scene.pin_of(bucket, name, 1)).await.expect("a look"), None);
        assert_eq!(states(scene, content).await, ["suspect"]);
        assert_eq!(looks.taken(), 1);
        let intent = scene.staged(bucket, name, BODY_BYTES).await;
        scene.catalog.commit_put(scene.shared_put_of(&intent, 1)).await.expect("committed");
        assert_eq!(looks.taken(), 0, "what is suspect needs no look");
        assert_eq!(scene.places(content).await, [(intent.physical_key, "present".to_owned())]);
        assert!(scene.queued().await.contains(&old) && scene.queued().await.len() == round + 1);
        books::check(scene).await;
    }
    looks.find("disk", Proof::Good);
    assert_eq!((scene.standing(content).await, scene.share(bucket, "d", 1).await), (Standing::Live(3), content));
}

/// The same without a look before the commit: an unannounced digest, a write that the reaper finishes, a part.
pub async fn a_bad_copy_is_found_by_the_commit(scene: &Scene) {
    let (bucket, looks) = (scene.bucket("bad").await, Looks::by(scene));
    let content = scene.share(bucket, "a", 1).await;
    looks.find("disk", Proof::Bad);
    let intent = scene.staged(bucket, "b", BODY_BYTES).await;
    scene.catalog.commit_put(scene.shared_put_of(&intent, 1)).await.expect("committed");
    assert_eq!(scene.places(content).await, [(intent.physical_key, "present".to_owned())]);
    let left = scene.staged(bucket, "c", BODY_BYTES).await;
    scene.clock.advance(LEASE);
    let token = scene.token();
    assert_eq!(scene.catalog.claim_expired(token, 9, LEASE).await.expect("claimed").len(), 1);
    let landed = Landed::Reaped { write: left.write, copies: 1, token };
    let put = CommitPut { landed, ..scene.shared_put_of(&left, 1) };
    scene.catalog.commit_put(put).await.expect("promoted");
    assert_eq!(scene.places(content).await, [(left.physical_key, "present".to_owned())]);
    let part = shared_part(scene, bucket).await;
    assert_eq!(scene.places(content).await, [(part.physical_key, "present".to_owned())]);
    assert_eq!((scene.standing(content).await, scene.booked().await), (Standing::Live(4), (5, 15, 0)));
}

/// A part of an upload, with a body that objects have, too.
async fn shared_part(scene: &Scene, bucket: BucketId) -> Intent {
    let upload = scene.upload(bucket, "parts").await;
    let intent = scene.staged_part(upload, 1, BODY_BYTES).await;
    let (landed, sha256) = (announced(intent.write, 1), Some(digest(1)));
    let source = PartSource::Written { landed, sha256, dedup: Some(bucket) };
    let part = scene.part_of(upload, 1, (scene.content(), BODY_BYTES), source);
    scene.catalog.commit_part(part).await.expect("committed");
    intent
}

/// Where nobody can tell, nothing is held, joined or called suspect: the bytes are content of their own. Once somebody
/// can, the old content is joined again.
pub async fn unclear_content_is_not_joined(scene: &Scene) {
    let (bucket, looks) = (scene.bucket("away").await, Looks::by(scene));
    let content = scene.share(bucket, "a", 1).await;
    looks.find("disk", Proof::Unclear);
    assert_eq!(scene.catalog.pin(&scene.pin_of(bucket, "b", 1)).await.expect("a look"), None);
    let own = [scene.share_on("cloud", bucket, "b", 1).await, scene.share_on("cloud", bucket, "c", 1).await];
    assert!(own[0] != content && own[1] != content && own[0] != own[1]);
    shared_part(scene, bucket).await;
    assert_eq!(
        (states(scene, content).await, scene.standing(content).await),
        (vec!["present".into()], Standing::Live(1))
    );
    assert_eq!((scene.queued().await.len(), scene.booked().await), (0, (10, 0, 0)));
    looks.find("disk", Proof::Good);
    assert_eq!(scene.share(bucket, "d", 1).await, content);
    assert_eq!(scene.standing(content).await, Standing::Live(2));
}

/// One good copy is enough, and those that are found bad on the way to it are suspect.
pub async fn one_good_copy_is_enough(scene: &Scene) {
    let (bucket, looks) = (scene.bucket("two").await, Looks::by(scene));
    scene.attach("cloud", None).await;
    let disk = scene.staged(bucket, "a", BODY_BYTES).await;
    let cloud = Intent { backend: backend("cloud"), write: disk.write, ..scene.intent(bucket, "a", BODY_BYTES) };
    scene.try_stage(&cloud).await.expect("staged");
    let put = CommitPut { landed: announced(disk.write, 2), ..scene.shared_put_of(&disk, 1) };
    scene.catalog.commit_put(put).await.expect("committed");
    let content = scene.content_of(bucket, "a").await;
    looks.find("cloud", Proof::Bad);
    let (pin, _) = scene.pinned(bucket, "b", 1).await;
    scene.commit_pinned(&pin, content).await.expect("committed");
    assert_eq!(states(scene, content).await, ["suspect", "present"]);
    looks.find("disk", Proof::Unclear);
    assert_ne!(scene.share(bucket, "c", 1).await, content, "the one that is left may be good or not");
    assert_eq!(states(scene, content).await, ["suspect", "present"]);
}

/// A suspicion against a write that joins: the books are exact, whoever is first.
pub async fn a_suspicion_meets_a_write(scene: &Scene) {
    let bucket = scene.bucket("race").await;
    for round in 0..ROUNDS {
        let content = scene.share(bucket, "a", 1).await;
        let copy = copy_of(scene, content).await;
        let intent = scene.staged(bucket, "b", BODY_BYTES).await;
        let (ours, theirs) = (scene.clone(), scene.clone());
        let put = ours.shared_put_of(&intent, 1);
        let write = async move { ours.catalog.commit_put(put).await.map(drop) };
        let suspect = async move { theirs.catalog.suspect(content, &copy).await };
        let (written, called) = both(write, suspect, round).await;
        written.expect("committed");
        assert!(called.expect("called"));
        assert_eq!((scene.standing(content).await, scene.places(content).await.len()), (Standing::Live(2), 1));
        books::check(scene).await;
        nothing_leaks(scene, bucket).await;
    }
}
