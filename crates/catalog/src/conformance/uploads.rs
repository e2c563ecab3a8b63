//! Facts about multipart uploads.

use s3o_model::conditions::WriteCondition;
use s3o_model::ids::{ContentId, UploadId};
use s3o_model::multipart::UploadState;

use super::refused;
use super::scene::{Scene, Standing, md5_of};
use crate::{Intents, Late, Objects, PartSource, Uploads, Verdict};

async fn state(scene: &Scene, upload: UploadId) -> UploadState {
    scene.catalog.upload(upload).await.expect("a look").expect("the upload").state
}

/// An upload is found with all it was created with; one that never was is not.
pub async fn an_upload_reads_back(scene: &Scene) {
    let bucket = scene.bucket("uploads").await;
    let id = scene.upload(bucket, "a/ä").await;
    let found = scene.catalog.upload(id).await.expect("a look").expect("the upload");
    assert_eq!((found.bucket, found.key.as_str(), found.state), (bucket, "a/ä", UploadState::Open));
    assert_eq!(found.created_at.millis(), scene.now().millis() / 1000 * 1000);
    let never = UploadId::new(scene.content().uuid());
    assert_eq!(scene.catalog.upload(never).await.expect("a look"), None);
}

/// Parts come by number, in pages, with their lengths and digests.
pub async fn parts_come_by_number(scene: &Scene) {
    let upload = scene.upload(scene.bucket("parts").await, "a").await;
    for number in [10_000, 2, 7] {
        scene.part(upload, number, u64::from(number)).await;
    }
    let first = scene.catalog.parts(upload, 0, 2).await.expect("parts");
    let rest = scene.catalog.parts(upload, 7, 2).await.expect("parts");
    let numbers: Vec<u32> = first.iter().chain(&rest).map(|part| part.number).collect();
    assert_eq!(numbers, [2, 7, 10_000]);
    assert_eq!((rest[0].length, rest[0].md5), (10_000, md5_of(rest[0].content)));
}

/// A part that is sent again displaces the first, whose bytes are queued.
pub async fn a_part_sent_again_displaces_the_first(scene: &Scene) {
    let upload = scene.upload(scene.bucket("again").await, "a").await;
    let (_, first) = scene.part(upload, 1, 5).await;
    let (_, second) = scene.part(upload, 1, 7).await;
    assert_eq!(scene.catalog.parts(upload, 0, 9).await.expect("parts")[0].content, second);
    assert_eq!(scene.standing(first).await, Standing::Condemned);
    assert_eq!(scene.booked().await, (7, 5, 0));
    assert_eq!(scene.number("SELECT count(*) FROM cleanup_queue WHERE reason = 'multipart'").await, 1);
}

async fn refer(scene: &Scene, upload: UploadId, number: u32, source: ContentId) -> Result<(), crate::Error> {
    let part = scene.part_of(upload, number, (source, 3), PartSource::Range { offset: 2 });
    scene.catalog.commit_part(part).await.map(drop)
}

/// A part may be a range of content that is there; no byte is written, the content is referred to.
pub async fn a_part_may_refer_to_a_range(scene: &Scene) {
    let bucket = scene.bucket("range").await;
    let source = scene.put(bucket, "source", 9).await;
    let upload = scene.upload(bucket, "a").await;
    let (_, written) = scene.part(upload, 1, 4).await;
    for _ in 0..3 {
        refer(scene, upload, 1, source).await.expect("committed");
        assert_eq!(scene.standing(source).await, Standing::Live(2), "again with the same content");
    }
    assert_eq!(scene.standing(written).await, Standing::Condemned);
    assert!(scene.delete(bucket, "source").await);
    let joined = scene.complete(upload, &[(1, source)]).await.expect("completed");
    let pieces = scene.catalog.pieces(joined, 0, 3, 9).await.expect("pieces");
    assert_eq!((pieces[0].whole, pieces[0].offset, pieces[0].length, pieces[0].whole_bytes), (source, 2, 3, 9));
    assert_eq!(scene.standing(source).await, Standing::Live(1));
}

/// Condemned content never comes back through a part.
pub async fn a_range_of_condemned_content_resolves_again(scene: &Scene) {
    let bucket = scene.bucket("range").await;
    let source = scene.put(bucket, "source", 9).await;
    assert!(scene.delete(bucket, "source").await);
    let upload = scene.upload(bucket, "a").await;
    refused(refer(scene, upload, 1, source).await, Verdict::ResolveAgain);
    assert_eq!(scene.catalog.parts(upload, 0, 9).await.expect("parts"), []);
}

/// A closed upload takes no part, written or referred to, and no intent for one.
pub async fn a_closed_upload_takes_no_part(scene: &Scene) {
    let bucket = scene.bucket("closed").await;
    let source = scene.put(bucket, "source", 9).await;
    let upload = scene.upload(bucket, "a").await;
    let intent = scene.staged_part(upload, 1, 5).await;
    let mut stranger = scene.staged_part(upload, 1, 5).await;
    scene.catalog.drop_write(stranger.write, Late::No).await.expect("dropped");
    stranger.key = "b".parse().expect("valid");
    refused(scene.try_stage(&stranger).await, Verdict::NoSuchUpload);
    scene.catalog.abort_upload(upload).await.expect("aborted");
    refused(scene.commit_part(&intent).await, Verdict::NoSuchUpload);
    refused(refer(scene, upload, 1, source).await, Verdict::NoSuchUpload);
    let late = s3o_model::intent::Intent { kind: intent.kind, ..scene.intent(bucket, "a", 5) };
    refused(scene.try_stage(&late).await, Verdict::NoSuchUpload);
    assert!(scene.catalog.drop_write(intent.write, Late::No).await.expect("dropped").was_open);
}

/// A fenced write of a part changes nothing.
pub async fn a_fenced_part_changes_nothing(scene: &Scene) {
    let upload = scene.upload(scene.bucket("fenced").await, "a").await;
    let (_, kept) = scene.part(upload, 1, 5).await;
    let intent = scene.staged_part(upload, 1, 6).await;
    scene.clock.advance(super::scene::LEASE);
    scene.reap(9, std::time::Duration::ZERO).await;
    refused(scene.commit_part(&intent).await, Verdict::Fenced);
    assert_eq!(scene.catalog.parts(upload, 0, 9).await.expect("parts")[0].content, kept);
}

/// Complete lays the listed parts end to end; every byte is found in its piece.
pub async fn complete_lays_parts_end_to_end(scene: &Scene) {
    let bucket = scene.bucket("complete").await;
    let displaced = scene.put(bucket, "a", 2).await;
    let upload = scene.upload(bucket, "a").await;
    let mut parts = Vec::new();
    for (number, size) in [(2, 5), (3, 7), (9, 4)] {
        parts.push(scene.part(upload, number, size).await);
    }
    let joined = scene.complete(upload, &parts).await.expect("completed");
    let resolved = scene.resolve("complete", "a").await;
    let object = resolved.object.expect("there");
    assert_eq!((object.content, object.size_bytes, resolved.whole), (joined, 16, None));
    assert_eq!(scene.standing(displaced).await, Standing::Condemned);
    for byte in 0..16 {
        let found = scene.catalog.pieces(joined, byte, byte + 1, 9).await.expect("pieces");
        let expected = if byte < 5 {
            (2, 0)
        } else if byte < 12 {
            (3, 5)
        } else {
            (9, 12)
        };
        assert_eq!((found.len(), found[0].number, found[0].start), (1, expected.0, expected.1), "byte {byte}");
        assert_eq!((found[0].is_whole(), found[0].locations.len()), (true, 1));
    }
    assert_eq!(scene.catalog.pieces(joined, 4, 13, 9).await.expect("pieces").len(), 3);
    assert_eq!(scene.catalog.pieces(joined, 4, 13, 2).await.expect("pieces").len(), 2);
    let numbered = scene.catalog.numbered_pieces(joined, 2, 1).await.expect("pieces");
    assert_eq!((numbered.pieces[0].number, numbered.pieces.len(), numbered.count), (3, 1, 3));
}

/// The answer is kept for who asks again; a second Complete or an Abort finds no open upload.
pub async fn a_completed_upload_keeps_its_answer(scene: &Scene) {
    let upload = scene.upload(scene.bucket("answer").await, "a").await;
    let parts = [scene.part(upload, 1, 5).await];
    let complete = scene.completion(upload, &parts).await;
    scene.catalog.complete_upload(complete.clone()).await.expect("completed");
    assert_eq!(state(scene, upload).await, UploadState::Completed(complete.answer));
    refused(scene.complete(upload, &parts).await, Verdict::NoSuchUpload);
    refused(scene.catalog.abort_upload(upload).await, Verdict::NoSuchUpload);
}

/// A part that was replaced after it was checked: nothing happens, the upload stays open.
pub async fn complete_with_a_replaced_part_runs_again(scene: &Scene) {
    let upload = scene.upload(scene.bucket("replaced").await, "a").await;
    let stale = [scene.part(upload, 1, 5).await, scene.part(upload, 2, 5).await];
    let fresh = [stale[0], scene.part(upload, 2, 5).await];
    refused(scene.complete(upload, &stale).await, Verdict::RunAgain);
    assert_eq!(state(scene, upload).await, UploadState::Open);
    assert_eq!(scene.resolve("replaced", "a").await.object, None);
    scene.complete(upload, &fresh).await.expect("completed");
}

/// A condition of Complete that fails leaves the upload open, with all its parts.
pub async fn complete_keeps_its_condition(scene: &Scene) {
    let bucket = scene.bucket("condition").await;
    scene.put(bucket, "a", 1).await;
    let upload = scene.upload(bucket, "a").await;
    let parts = [scene.part(upload, 1, 5).await];
    let mut complete = scene.completion(upload, &parts).await;
    complete.condition = WriteCondition::IfAbsent;
    refused(scene.catalog.complete_upload(complete.clone()).await, Verdict::PreconditionFailed);
    assert_eq!(state(scene, upload).await, UploadState::Open);
    assert!(scene.delete(bucket, "a").await);
    scene.catalog.complete_upload(complete).await.expect("completed");
}

/// Parts that were not listed stay with the closed upload until cleanup takes them.
pub async fn unlisted_parts_are_left_to_cleanup(scene: &Scene) {
    let upload = scene.upload(scene.bucket("unlisted").await, "a").await;
    let listed = scene.part(upload, 2, 5).await;
    let (_, unlisted) = scene.part(upload, 1, 7).await;
    scene.complete(upload, &[listed]).await.expect("completed");
    assert_eq!((scene.standing(unlisted).await, scene.queued().await), (Standing::Live(1), vec![]));
    scene.clean_up().await;
    assert_eq!((scene.standing(unlisted).await, scene.booked().await), (Standing::Forgotten, (5, 0, 0)));
}

/// Abort closes an upload once; its parts are left to cleanup.
pub async fn an_upload_is_aborted_once(scene: &Scene) {
    let upload = scene.upload(scene.bucket("abort").await, "a").await;
    let parts = [scene.part(upload, 1, 5).await];
    scene.catalog.abort_upload(upload).await.expect("aborted");
    assert_eq!(state(scene, upload).await, UploadState::Aborted);
    refused(scene.catalog.abort_upload(upload).await, Verdict::NoSuchUpload);
    refused(scene.complete(upload, &parts).await, Verdict::NoSuchUpload);
    scene.clean_up().await;
    assert_eq!((scene.catalog.upload(upload).await.expect("a look"), scene.booked().await), (None, (0, 0, 0)));
}

/// As many parts as S3 allows become one object in one unit, and go again in bounded steps.
pub async fn ten_thousand_parts_complete_in_one_unit(scene: &Scene) {
    let bucket = scene.bucket("parts").await;
    let source = scene.put(bucket, "source", 5).await;
    let upload = scene.upload(bucket, "a").await;
    let parts = scene.parts_of(upload, 10_000, (source, 3)).await;
    let complete = scene.completion(upload, &parts).await;
    let before = scene.catalog.effort().units;
    let begun = tokio::time::Instant::now();
    let joined = complete.content;
    scene.catalog.complete_upload(complete).await.expect("completed");
    assert!(begun.elapsed().as_secs() < 10, "it took {:?}", begun.elapsed());
    assert_eq!(scene.catalog.effort().units - before, 1);
    assert_eq!(scene.standing(source).await, Standing::Live(10_001));
    let last = scene.catalog.pieces(joined, 29_999, 30_000, 9).await.expect("pieces");
    assert_eq!((last.len(), last[0].number, last[0].start), (1, 10_000, 29_997));
    assert!(scene.delete(bucket, "a").await && scene.delete(bucket, "source").await);
    assert_eq!(scene.standing(source).await, Standing::Live(10_000));
    scene.clean_up().await;
    assert_eq!((scene.standing(source).await, scene.booked().await), (Standing::Forgotten, (0, 0, 0)));
}
