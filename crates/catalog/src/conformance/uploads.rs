//! Tests of multipart uploads.

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::{ContentId, UploadId};
use s3o_model::multipart::UploadState;

use super::fixture::{ContentStanding, Fixture, md5_of};
use super::refused;
use crate::{Late, PartSource, Verdict};

async fn state(fixture: &Fixture, upload: UploadId) -> UploadState {
    fixture.catalog.upload(upload).await.expect("a query").expect("the upload").state
}

/// An unknown ID returns None.
pub async fn upload_reads_back(fixture: &Fixture) {
    let bucket = fixture.bucket("uploads").await;
    let id = fixture.upload(bucket, "a/ä").await;
    let found = fixture.catalog.upload(id).await.expect("a query").expect("the upload");
    assert_eq!((found.bucket, found.key.as_str(), found.state), (bucket, "a/ä", UploadState::Open));
    assert_eq!(found.created_at.millis(), fixture.now().millis() / 1000 * 1000);
    let never = UploadId::new(fixture.content().uuid());
    assert_eq!(fixture.catalog.upload(never).await.expect("a query"), None);
}

/// The pages continue after a number, and each part has its length and its digest.
pub async fn parts_are_listed_by_number(fixture: &Fixture) {
    let upload = fixture.upload(fixture.bucket("parts").await, "a").await;
    for number in [10_000, 2, 7] {
        fixture.part(upload, number, u64::from(number)).await;
    }
    let first = fixture.catalog.parts(upload, 0, 2).await.expect("parts");
    let rest = fixture.catalog.parts(upload, 7, 2).await.expect("parts");
    let numbers: Vec<u32> = first.iter().chain(&rest).map(|part| part.number).collect();
    assert_eq!(numbers, [2, 7, 10_000]);
    assert_eq!((rest[0].length, rest[0].md5), (10_000, md5_of(rest[0].content)));
}

/// Its bytes are queued with the reason `multipart`.
pub async fn replaced_part_is_condemned(fixture: &Fixture) {
    let upload = fixture.upload(fixture.bucket("again").await, "a").await;
    let (_, first) = fixture.part(upload, 1, 5).await;
    let (_, second) = fixture.part(upload, 1, 7).await;
    assert_eq!(fixture.catalog.parts(upload, 0, 9).await.expect("parts")[0].content, second);
    assert_eq!(fixture.standing(first).await, ContentStanding::Condemned);
    assert_eq!(fixture.usage().await, (7, 5, 0));
    assert_eq!(fixture.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'multipart'").await, 1);
}

async fn refer(fixture: &Fixture, upload: UploadId, number: u32, source: ContentId) -> Result<(), crate::Error> {
    let part = fixture.part_of(upload, number, (source, 3), PartSource::Range { offset: 2 });
    fixture.store_part(part).await.map(drop)
}

/// No byte is written, and the part counts as a reference. Replacing it by the same range keeps the count.
pub async fn part_can_refer_to_a_range_of_content(fixture: &Fixture) {
    let bucket = fixture.bucket("range").await;
    let source = fixture.put(bucket, "source", 9).await;
    let upload = fixture.upload(bucket, "a").await;
    let (_, written) = fixture.part(upload, 1, 4).await;
    for _ in 0..3 {
        refer(fixture, upload, 1, source).await.expect("committed");
        assert_eq!(fixture.standing(source).await, ContentStanding::Live(2), "again with the same content");
    }
    assert_eq!(fixture.standing(written).await, ContentStanding::Condemned);
    assert!(fixture.delete(bucket, "source").await);
    let joined = fixture.complete(upload, &[(1, source)]).await.expect("completed");
    let pieces = fixture.catalog.pieces(joined, 0, 3, 9).await.expect("pieces");
    assert_eq!((pieces[0].whole, pieces[0].offset, pieces[0].length, pieces[0].whole_bytes), (source, 2, 3, 9));
    assert_eq!(fixture.standing(source).await, ContentStanding::Live(1));
}

/// The caller gets `ResolveAgain`.
pub async fn part_of_condemned_content_is_refused(fixture: &Fixture) {
    let bucket = fixture.bucket("range").await;
    let source = fixture.put(bucket, "source", 9).await;
    assert!(fixture.delete(bucket, "source").await);
    let upload = fixture.upload(bucket, "a").await;
    refused(refer(fixture, upload, 1, source).await, Verdict::ResolveAgain);
    assert_eq!(fixture.catalog.parts(upload, 0, 9).await.expect("parts"), []);
}

/// Commits, ranges and intents get `NoSuchUpload`, and so does an intent with another key.
pub async fn closed_upload_refuses_parts(fixture: &Fixture) {
    let bucket = fixture.bucket("closed").await;
    let source = fixture.put(bucket, "source", 9).await;
    let upload = fixture.upload(bucket, "a").await;
    let intent = fixture.staged_part(upload, 1, 5).await;
    let mut other_key = fixture.staged_part(upload, 1, 5).await;
    fixture.catalog.drop_write(other_key.write, Late::No).await.expect("dropped");
    other_key.key = "b".parse().expect("valid");
    refused(fixture.try_stage(&other_key).await, Verdict::NoSuchUpload);
    fixture.catalog.abort_upload(upload).await.expect("aborted");
    refused(fixture.commit_part(&intent).await, Verdict::NoSuchUpload);
    refused(refer(fixture, upload, 1, source).await, Verdict::NoSuchUpload);
    let late = s3o_model::intent::Intent { kind: intent.kind, ..fixture.intent(bucket, "a", 5) };
    refused(fixture.try_stage(&late).await, Verdict::NoSuchUpload);
    assert!(fixture.catalog.drop_write(intent.write, Late::No).await.expect("dropped").was_open);
}

/// The part that was stored before is kept.
pub async fn fenced_part_changes_nothing(fixture: &Fixture) {
    let upload = fixture.upload(fixture.bucket("fenced").await, "a").await;
    let (_, kept) = fixture.part(upload, 1, 5).await;
    let intent = fixture.staged_part(upload, 1, 6).await;
    fixture.clock.advance(super::fixture::LEASE);
    fixture.reap(9, std::time::Duration::ZERO).await;
    refused(fixture.commit_part(&intent).await, Verdict::Fenced);
    assert_eq!(fixture.catalog.parts(upload, 0, 9).await.expect("parts")[0].content, kept);
}

/// Every byte of the object is found in its piece.
pub async fn complete_joins_parts_in_order(fixture: &Fixture) {
    let bucket = fixture.bucket("complete").await;
    let displaced = fixture.put(bucket, "a", 2).await;
    let upload = fixture.upload(bucket, "a").await;
    let mut parts = Vec::new();
    for (number, size) in [(2, 5), (3, 7), (9, 4)] {
        parts.push(fixture.part(upload, number, size).await);
    }
    let joined = fixture.complete(upload, &parts).await.expect("completed");
    let resolved = fixture.resolve("complete", "a").await;
    let object = resolved.object.expect("there");
    assert_eq!((object.content, object.size_bytes, resolved.whole), (joined, 16, None));
    assert_eq!(fixture.standing(displaced).await, ContentStanding::Condemned);
    for byte in 0..16 {
        let found = fixture.catalog.pieces(joined, byte, byte + 1, 9).await.expect("pieces");
        let expected = if byte < 5 {
            (2, 0)
        } else if byte < 12 {
            (3, 5)
        } else {
            (9, 12)
        };
        assert_eq!((found.len(), found[0].number, found[0].start), (1, expected.0, expected.1), "byte {byte}");
        assert_eq!((found[0].is_whole(), found[0].copies.len()), (true, 1));
    }
    assert_eq!(fixture.catalog.pieces(joined, 4, 13, 9).await.expect("pieces").len(), 3);
    assert_eq!(fixture.catalog.pieces(joined, 4, 13, 2).await.expect("pieces").len(), 2);
    let numbered = fixture.catalog.numbered_pieces(joined, 2, 1).await.expect("pieces");
    assert_eq!((numbered.pieces[0].number, numbered.pieces.len(), numbered.count), (3, 1, 3));
}

/// The answer serves a repeated Complete. The catalog itself refuses a second Complete and an Abort.
pub async fn completed_upload_keeps_its_answer(fixture: &Fixture) {
    let upload = fixture.upload(fixture.bucket("answer").await, "a").await;
    let parts = [fixture.part(upload, 1, 5).await];
    let complete = fixture.completion(upload, &parts).await;
    fixture.catalog.complete_upload(complete.clone()).await.expect("completed");
    assert_eq!(state(fixture, upload).await, UploadState::Completed(complete.answer));
    refused(fixture.complete(upload, &parts).await, Verdict::NoSuchUpload);
    refused(fixture.catalog.abort_upload(upload).await, Verdict::NoSuchUpload);
}

/// The caller gets `RunAgain`, and the upload stays open.
pub async fn complete_with_replaced_part_is_refused(fixture: &Fixture) {
    let upload = fixture.upload(fixture.bucket("replaced").await, "a").await;
    let stale = [fixture.part(upload, 1, 5).await, fixture.part(upload, 2, 5).await];
    let fresh = [stale[0], fixture.part(upload, 2, 5).await];
    refused(fixture.complete(upload, &stale).await, Verdict::RunAgain);
    assert_eq!(state(fixture, upload).await, UploadState::Open);
    assert_eq!(fixture.resolve("replaced", "a").await.object, None);
    fixture.complete(upload, &fresh).await.expect("completed");
}

/// A refusal leaves the upload open with its parts.
pub async fn complete_checks_its_condition(fixture: &Fixture) {
    let bucket = fixture.bucket("condition").await;
    fixture.put(bucket, "a", 1).await;
    let upload = fixture.upload(bucket, "a").await;
    let parts = [fixture.part(upload, 1, 5).await];
    let mut complete = fixture.completion(upload, &parts).await;
    complete.condition = WriteCondition::IfAbsent;
    refused(fixture.catalog.complete_upload(complete.clone()).await, Verdict::PreconditionFailed);
    assert_eq!(state(fixture, upload).await, UploadState::Open);
    assert!(fixture.delete(bucket, "a").await);
    fixture.catalog.complete_upload(complete).await.expect("completed");
}

/// They stay with the closed upload until cleanup expands it.
pub async fn unlisted_parts_are_deleted_by_cleanup(fixture: &Fixture) {
    let upload = fixture.upload(fixture.bucket("unlisted").await, "a").await;
    let listed = fixture.part(upload, 2, 5).await;
    let (_, unlisted) = fixture.part(upload, 1, 7).await;
    fixture.complete(upload, &[listed]).await.expect("completed");
    assert_eq!((fixture.standing(unlisted).await, fixture.queued().await), (ContentStanding::Live(1), vec![]));
    fixture.clean_up().await;
    assert_eq!((fixture.standing(unlisted).await, fixture.usage().await), (ContentStanding::Deleted, (5, 0, 0)));
}

/// Cleanup deletes its parts.
pub async fn upload_is_aborted_once(fixture: &Fixture) {
    let upload = fixture.upload(fixture.bucket("abort").await, "a").await;
    let parts = [fixture.part(upload, 1, 5).await];
    fixture.catalog.abort_upload(upload).await.expect("aborted");
    assert_eq!(state(fixture, upload).await, UploadState::Aborted);
    refused(fixture.catalog.abort_upload(upload).await, Verdict::NoSuchUpload);
    refused(fixture.complete(upload, &parts).await, Verdict::NoSuchUpload);
    fixture.clean_up().await;
    assert_eq!((fixture.catalog.upload(upload).await.expect("a query"), fixture.usage().await), (None, (0, 0, 0)));
}

/// Cleanup releases them in bounded steps.
pub async fn ten_thousand_parts_complete_in_one_unit(fixture: &Fixture) {
    let bucket = fixture.bucket("parts").await;
    let source = fixture.put(bucket, "source", 5).await;
    let upload = fixture.upload(bucket, "a").await;
    let parts = fixture.parts_of(upload, 10_000, (source, 3)).await;
    let complete = fixture.completion(upload, &parts).await;
    let before = fixture.catalog.effort().units;
    let begun = tokio::time::Instant::now();
    let joined = complete.content;
    fixture.catalog.complete_upload(complete).await.expect("completed");
    assert!(begun.elapsed().as_secs() < 10, "it took {:?}", begun.elapsed());
    assert_eq!(fixture.catalog.effort().units - before, 1);
    assert_eq!(fixture.standing(source).await, ContentStanding::Live(10_001));
    let last = fixture.catalog.pieces(joined, 29_999, 30_000, 9).await.expect("pieces");
    assert_eq!((last.len(), last[0].number, last[0].start), (1, 10_000, 29_997));
    assert!(fixture.delete(bucket, "a").await && fixture.delete(bucket, "source").await);
    assert_eq!(fixture.standing(source).await, ContentStanding::Live(10_000));
    fixture.clean_up().await;
    assert_eq!((fixture.standing(source).await, fixture.usage().await), (ContentStanding::Deleted, (0, 0, 0)));
}
