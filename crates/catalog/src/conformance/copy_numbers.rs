//! Tests of the number of copies: factors, removal, drain, and the removal of backends.

use std::time::Duration;

use s3o_model::cleanup::Reason;
use s3o_model::conditions::WriteCondition;
use s3o_model::content::Location;
use s3o_model::ids::{BucketId, ContentId};
use s3o_model::names::BackendName;

use super::fixture::replicas::COPY_BYTES as SIZE;
use super::fixture::{Fixture, backend, bucket_name};
use super::{damaged_copies, refused};
use crate::unit::json;
use crate::{CommitPut, RemoveCopy, ReplacedCopy, ReplicaSource, StoredBytes, Verdict};

const GRACE: Duration = Duration::from_mins(1);

/// Only copies that were probed support a removal, and only if they are as many as the factor.
pub async fn copy_is_removed_if_enough_others_are_proven(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(3).await;
    let content = fixture.put_copies(bucket, &["disk", "east", "west"], 3).await;
    let [disk, east, west] = [
        fixture.copy_on(content, "disk").await,
        fixture.copy_on(content, "east").await,
        fixture.copy_on(content, "west").await,
    ];
    let remove = |copy: &Location, kept: Vec<Location>| RemoveCopy {
        content,
        copy: copy.clone(),
        kept,
        reason: Reason::Replication,
        grace: GRACE,
    };
    let all = vec![disk.clone(), east.clone(), west.clone()];
    refused(fixture.catalog.remove_copy(&remove(&west, all.clone())).await, Verdict::NotNeeded);
    fixture.catalog.set_factors(2, &[]).await.expect("stored");
    fixture.review().await;
    assert_eq!(fixture.copy_work(true).await.len(), 1);
    refused(fixture.catalog.remove_copy(&remove(&west, vec![disk.clone()])).await, Verdict::NotNeeded);
    // The copy on `east` was moved away and back since the probe.
    let stale = Location { physical_key: "copies/a~before".to_owned(), ..east.clone() };
    refused(fixture.catalog.remove_copy(&remove(&west, vec![disk.clone(), stale])).await, Verdict::NotNeeded);
    fixture.catalog.remove_copy(&remove(&west, all.clone())).await.expect("removed");
    assert_eq!(
        (fixture.places_of(content).await, fixture.counters("west").await),
        (vec!["disk".into(), "east".into()], (0, 5, 0))
    );
    assert_eq!(fixture.number("SELECT due FROM cleanup_queue").await, fixture.now().after(GRACE).millis());
    assert!(fixture.copy_work(true).await.is_empty());
    refused(fixture.catalog.remove_copy(&remove(&disk, all)).await, Verdict::NotNeeded);
}

/// A raised factor makes every content of the bucket work, a lowered one makes the excess copies work.
pub async fn changed_factor_is_reviewed(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let name = bucket_name("copies");
    assert!(!fixture.catalog.set_factors(1, &[]).await.expect("unchanged"));
    assert!(fixture.catalog.set_factors(1, &[(&name, 2)]).await.expect("changed"));
    fixture.review().await;
    let lacking = fixture.copy_work(false).await;
    assert_eq!((lacking[0].content, lacking[0].factor), (content, 2));
    assert!(fixture.catalog.set_factors(1, &[]).await.expect("changed"));
    fixture.review().await;
    fixture.catalog.settle_copy_work(content).await.expect("settled");
    assert!(fixture.copy_work(false).await.is_empty() && fixture.copy_work(true).await.is_empty());
    assert!(!fixture.catalog.due_copy_work(false, 1).await.expect("a query").1, "the review has ended");
}

/// A copy in a bucket with a higher factor raises the factor of its content, also of the pieces of joined content.
pub async fn reference_from_bucket_with_higher_factor_raises_the_factor(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let other = fixture.bucket("important").await;
    fixture.catalog.set_factors(1, &[(&bucket_name("important"), 2)]).await.expect("stored");
    fixture.review().await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let row = fixture.row(other, "b", content, SIZE);
    fixture.catalog.commit_copy(row, content, WriteCondition::None).await.expect("copied");
    assert_eq!((fixture.copy_work(false).await[0].content, fixture.copy_work(false).await[0].factor), (content, 2));
    let upload = fixture.upload(bucket, "joined").await;
    let part = fixture.part(upload, 1, SIZE).await;
    let joined = fixture.complete(upload, &[part]).await.expect("completed");
    let row = fixture.row(other, "c", joined, SIZE);
    fixture.catalog.commit_copy(row, joined, WriteCondition::None).await.expect("copied");
    assert!(fixture.catalog.expand_copy_work(joined, 100).await.expect("expanded"));
    assert!(!fixture.catalog.expand_copy_work(joined, 100).await.expect("expanded"));
    let lacking: Vec<ContentId> = fixture.copy_work(false).await.iter().map(|work| work.content).collect();
    assert_eq!((lacking.len(), lacking.contains(&part.1)), (2, true));
}

/// A draining backend takes no intents, its copies do not count, and a move releases its copy after the grace.
pub async fn drained_copy_is_moved_in_one_unit(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk"], 1).await;
    let all: Vec<BackendName> = ["disk", "east", "west"].map(backend).to_vec();
    refused(fixture.catalog.start_drain(&backend("disk"), &all[..1]).await, Verdict::PreconditionFailed);
    let source = fixture.copy_on(content, "disk").await;
    let early = fixture.stage_replica(content, "east").await.expect("staged");
    let drained = || ReplicaSource::Drained(ReplacedCopy { copy: source.clone(), grace: GRACE });
    // The backend is not draining: the copy would replace one that counts.
    refused(fixture.commit_replica(&early, &source, drained()).await, Verdict::NotNeeded);
    fixture.catalog.start_drain(&backend("disk"), &all).await.expect("started");
    refused(fixture.stage_copies(&fixture.copy_intents(bucket, &["disk"])).await, Verdict::Closed);
    assert_eq!(fixture.catalog.draining_backends().await.expect("a query"), [backend("disk")]);
    let found = fixture.catalog.contents_on(&backend("disk"), "", 10).await.expect("a query");
    assert_eq!((found.len(), found[0].content, found[0].counting()), (1, content, 0));
    fixture.commit_replica(&early, &source, drained()).await.expect("moved");
    assert_eq!(
        (fixture.places_of(content).await, fixture.queued().await),
        (vec!["east".to_owned()], vec![source.physical_key])
    );
    assert_eq!(fixture.number("SELECT due FROM cleanup_queue").await, fixture.now().after(GRACE).millis());
    let held = fixture.catalog.backend_holdings(&backend("disk")).await.expect("a query");
    assert_eq!((held.locations, held.cleanups, held.is_empty()), (0, 1, false));
    fixture.catalog.stop_drain(&backend("disk")).await.expect("stopped");
    fixture.stage_copies(&fixture.copy_intents(bucket, &["disk"])).await.expect("takes writes again");
}

/// A backend is removed only when no row names bytes there; afterwards it takes neither intents nor marks.
pub async fn only_an_empty_backend_is_removed(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let disk = backend("disk");
    fixture.put_copies(bucket, &["disk"], 1).await;
    refused(fixture.catalog.begin_removal(&disk).await, Verdict::NotEmpty);
    assert!(fixture.delete(bucket, "a").await);
    refused(fixture.catalog.begin_removal(&disk).await, Verdict::NotEmpty);
    fixture.change("DELETE FROM cleanup_queue", vec![]).await;
    fixture.change("UPDATE backend_quotas SET orphan_bytes = 0", vec![]).await;
    refused(fixture.catalog.finish_removal(&disk).await, Verdict::RunAgain);
    fixture.catalog.begin_removal(&disk).await.expect("begun");
    refused(fixture.stage_copies(&fixture.copy_intents(bucket, &["disk"])).await, Verdict::Closed);
    refused(fixture.catalog.plan_mark(&disk, "m1").await, Verdict::Closed);
    fixture.catalog.finish_removal(&disk).await.expect("removed");
    assert!(fixture.catalog.known_backend(&disk).await.expect("known").removed);
    assert!(fixture.catalog.backend_states().await.expect("states").iter().any(|state| state.removed));
}

/// A joining write adds as many copies as the content lacks; its other bytes become cleanups.
pub async fn join_adds_only_missing_copies(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    let content = fixture.share(bucket, "a", 1).await;
    assert_eq!(fixture.places_of(content).await, ["disk"]);
    let intents = fixture.copy_intents(bucket, &["east", "west"]);
    fixture.stage_copies(&intents).await.expect("staged");
    let stored =
        StoredBytes::Announced { write: intents[0].write, copies: 2, backend_versions: Vec::new(), failed: Vec::new() };
    let joined = CommitPut { stored, factor: 2, ..fixture.shared_put_of(&intents[0], 1) };
    fixture.commit_put(joined).await.expect("joined");
    assert_eq!((fixture.places_of(content).await.len(), fixture.queued().await.len()), (2, 1));
    fixture.catalog.settle_copy_work(content).await.expect("settled");
    assert!(fixture.copy_work(false).await.is_empty() && fixture.copy_work(true).await.is_empty());
}

/// A damaged copy, or one that was not found since its backend was accepted, is noted although enough others count. It
/// stays noted until it is confirmed or removed.
pub async fn unproven_copy_besides_enough_others_is_work_until_it_is_removed(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(3).await;
    let content = fixture.put_copies(bucket, &["disk", "east", "west"], 3).await;
    let [disk, east, west] = [
        fixture.copy_on(content, "disk").await,
        fixture.copy_on(content, "east").await,
        fixture.copy_on(content, "west").await,
    ];
    fixture.change("UPDATE backends SET trust_from = 9007199254740991 WHERE name = 'west'", vec![]).await;
    fixture.set_factors(2).await;
    let noted = fixture.copy_work(true).await;
    assert_eq!((noted.len(), noted[0].counting(), noted[0].factor), (1, 2, 2));
    fixture.change("UPDATE backends SET trust_from = NULL", vec![]).await;
    assert!(fixture.catalog.suspect(content, &west).await.expect("a change"));
    fixture.catalog.settle_copy_work(content).await.expect("an answer");
    assert_eq!((fixture.copy_work(true).await.len(), fixture.copy_work(false).await.len()), (1, 0));
    let remove = RemoveCopy { content, copy: west, kept: vec![disk, east], reason: Reason::Replication, grace: GRACE };
    fixture.catalog.remove_copy(&remove).await.expect("removed");
    assert_eq!((fixture.places_of(content).await.len(), fixture.queued().await.len()), (2, 1));
    assert!(fixture.copy_work(true).await.is_empty() && fixture.copy_work(false).await.is_empty());
}

/// The configuration of a writer may be older than the factor in the catalog. Its commit is planned again, and then
/// notes the copies that are missing.
pub async fn writer_with_an_older_factor_notes_missing_copies(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let intents = fixture.copy_intents(bucket, &["disk"]);
    fixture.stage_copies(&intents).await.expect("staged");
    fixture.set_factors(2).await;
    let put = |factor| fixture.put_of_copies(&intents, Vec::new(), factor);
    refused(fixture.commit_put(put(1)).await, Verdict::ResolveAgain);
    fixture.commit_put(put(usize::MAX)).await.expect("committed");
    let lacking = fixture.copy_work(false).await;
    assert_eq!((lacking.len(), lacking[0].counting(), lacking[0].factor), (1, 1, 2));
}

/// Content that one instance cannot reach is due for the others. For itself it is due after a while, or once a backend
/// became usable. It does not halt a review.
pub async fn content_out_of_reach_is_left_to_other_instances(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(2).await;
    fixture.put_copies(bucket, &["disk"], 2).await;
    fixture.catalog.start_copy_review().await.expect("started");
    let (one, other) = (fixture.instance(), fixture.instance());
    let seen_by = async |instance| {
        let due = fixture.catalog.due_copy_work_of(false, 9, Some(instance)).await.expect("a query");
        (due.work.len(), due.has_left_work)
    };
    let found = fixture.copy_work(false).await;
    assert!(!fixture.catalog.review_copies(9, 1).await.expect("an answer"), "the review waits for due work");
    fixture.catalog.leave_copy_work(&found, one, GRACE).await.expect("left");
    assert_eq!((seen_by(one).await, seen_by(other).await), ((0, true), (1, false)));
    assert!(fixture.catalog.review_copies(9, 1).await.expect("reviewed"));
    fixture.catalog.hasten_copy_work().await.expect("due");
    assert_eq!((seen_by(one).await.0, fixture.copy_work(false).await[0].attempts), (1, 0));
    // A backend became usable since the work was read.
    fixture.catalog.leave_copy_work(&found, one, GRACE).await.expect("left");
    assert_eq!(seen_by(one).await.0, 1);
    fixture.catalog.leave_copy_work(&fixture.copy_work(false).await, one, GRACE).await.expect("left");
    assert_eq!(seen_by(one).await.0, 0);
    fixture.clock.advance(GRACE);
    assert_eq!(seen_by(one).await, (1, false));
}

/// While a factor is above two, contents with at most one copy are noted before all others.
pub async fn last_copies_are_noted_first(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let two = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    let last = fixture.put(bucket, "b", SIZE).await;
    fixture.catalog.set_factors(3, &[]).await.expect("stored");
    let noted = async || fixture.copy_work(false).await.iter().map(|work| work.content).collect::<Vec<_>>();
    while noted().await.is_empty() {
        assert!(fixture.catalog.review_copies(1, 1000).await.expect("reviewed"));
    }
    assert_eq!(noted().await, [last]);
    fixture.review().await;
    assert_eq!(noted().await, [last, two]);
}

/// An audit lowers the factor of content that only buckets with a lower one refer to.
pub async fn factor_is_lowered_by_the_audit(fixture: &Fixture) {
    let bucket = fixture.bucket_with_factor(1).await;
    let other = fixture.bucket("important").await;
    fixture.catalog.set_factors(1, &[(&bucket_name("important"), 2)]).await.expect("stored");
    fixture.review().await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    let row = fixture.row(other, "b", content, SIZE);
    fixture.catalog.commit_copy(row, content, WriteCondition::None).await.expect("copied");
    assert_eq!(fixture.catalog.lower_factors(None, content).await.expect("an answer"), 0);
    assert!(fixture.delete(other, "b").await);
    assert!(fixture.copy_work(true).await.is_empty());
    assert_eq!(fixture.catalog.lower_factors(None, content).await.expect("lowered"), 1);
    assert_eq!(fixture.copy_work(true).await[0].factor, 1);
    assert_eq!(fixture.catalog.lower_factors(None, content).await.expect("an answer"), 0);
}

/// An audit leaves content with very many references to the next review: the unit that lowers a factor reads all
/// references.
pub async fn factor_of_often_referenced_content_is_lowered_by_the_review(fixture: &Fixture) {
    const REFERENCES: i64 = 10_001;
    let bucket = fixture.bucket_with_factor(1).await;
    let content = fixture.put_copies(bucket, &["disk", "east"], 2).await;
    let numbers: Vec<[i64; 1]> = (0..REFERENCES).map(|number| [number]).collect();
    fixture
        .change(
            "INSERT INTO objects (bucket_id, key, content_id, version_id, size_bytes, etag, headers, metadata, tags, \
             last_modified) SELECT o.bucket_id, o.key || '-' || (t.value ->> 0), o.content_id, o.version_id, \
             o.size_bytes, o.etag, o.headers, o.metadata, o.tags, o.last_modified FROM objects o \
             JOIN json_each($2) t ON o.content_id = $1",
            crate::params![content, json(&numbers)],
        )
        .await;
    let raise = "UPDATE contents SET factor = 2, ref_count = ref_count + $2 WHERE id = $1";
    fixture.change(raise, crate::params![content, REFERENCES]).await;
    assert_eq!(fixture.catalog.lower_factors(None, content).await.expect("an answer"), 0);
    fixture.catalog.start_copy_review().await.expect("started");
    fixture.review().await;
    assert_eq!(fixture.copy_work(true).await[0].factor, 1);
}

/// Runs the operations of the workers that write and remove copies, for tests that record their statements.
pub async fn run_operations(fixture: &Fixture, bucket: BucketId) {
    let content = fixture.put(bucket, "copied", SIZE).await;
    fixture.attach("cloud", None).await;
    fixture.set_factors(2).await;
    let source = fixture.copy_on(content, "disk").await;
    let stage = fixture.stage_replica(content, "cloud").await.expect("staged");
    fixture.commit_replica(&stage, &source, ReplicaSource::Nothing).await.expect("committed");
    fixture.catalog.confirm_copy(content, &source, fixture.now()).await.expect("confirmed");
    fixture.set_factors(1).await;
    let (kept, grace) = (vec![source], Duration::ZERO);
    let remove = RemoveCopy { content, copy: stage.target, kept, reason: Reason::Replication, grace };
    fixture.catalog.remove_copy(&remove).await.expect("removed");
    let found = fixture.catalog.contents_on(&backend("disk"), "", 9).await.expect("an answer");
    fixture.catalog.postpone_copy_work(&found[0], GRACE, "why").await.expect("postponed");
    fixture.catalog.leave_copy_work(&found, fixture.instance(), GRACE).await.expect("left");
    assert!(!fixture.catalog.is_copy_announced(content, &backend("disk")).await.expect("an answer"));
    fixture.catalog.lower_factors(None, content).await.expect("an answer");
    assert_eq!(fixture.catalog.readable_copies(content).await.expect("an answer").len(), 1);
    damaged_copies::give_up(fixture, content, "disk").await;
}
