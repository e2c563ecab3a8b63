//! Upper bounds of backend calls and commits.

use std::sync::Arc;

use s3o_catalog::Mode;
use s3o_engine::CopySource;
use s3o_engine::multipart::{CompleteUpload, CreateUpload, UploadPartCopy, UploadRef};
use s3o_model::conditions::{ReadConditions, WriteCondition};
use s3o_model::multipart::ListedPart;
use s3o_model::object::Attributes;

use s3o_tests::harness::{Harness, bucket, copy, get, key};
use s3o_workers::{Report, Worker as _};

const PARTS: u32 = 10_000;

#[tokio::test]
async fn completing_and_copying_ten_thousand_parts_makes_no_backend_call() {
    let harness = Harness::new(u64::MAX, Mode::Threaded).await;
    let client = Arc::new(());
    let five_mebibytes = vec![7; 5 * 1024 * 1024];
    harness.engine.put_object(harness.put("small", &five_mebibytes, &client)).await.expect("stored");
    let calls = harness.flaky.calls();

    let source = || CopySource { bucket: bucket(), key: key("small"), conditions: ReadConditions::default() };
    let create = CreateUpload {
        bucket: bucket(),
        key: key("huge"),
        attributes: Attributes::default(),
        checksum: None,
        expiry: None,
    };
    let upload = harness.engine.create_upload(create).await.expect("opened").upload.id;
    let target = UploadRef { bucket: bucket(), key: key("huge"), upload };
    let mut parts = Vec::new();
    for number in 1..=PARTS {
        let part = UploadPartCopy { target: target.clone(), number, source: source(), range: None };
        let etag = harness.engine.upload_part_copy(part).await.expect("copied").etag;
        parts.push(ListedPart { number, etag, checksum: None });
    }
    let condition = WriteCondition::None;
    let complete = CompleteUpload { target, parts, condition, checksum: None, coverage: None, size_bytes: None };
    harness.engine.complete_upload(complete).await.expect("completed");
    harness.engine.copy_object(copy("huge", "huge copy")).await.expect("copied");

    assert_eq!(harness.flaky.calls(), calls, "no backend call was made");
    let found = harness.engine.head_object(&get("huge copy")).await.expect("found");
    assert_eq!(found.object.size_bytes, u64::from(PARTS) * 5 * 1024 * 1024);
    assert!(found.object.etag.as_str().ends_with("-10000"));
    println!("{PARTS} parts completed and copied with {} backend calls", harness.flaky.calls() - calls);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_writers_share_commits() {
    const WRITERS: usize = 16;
    const PUTS: usize = 100;
    let harness = Arc::new(Harness::new(u64::MAX, Mode::Threaded).await);
    let before = harness.catalog.effort();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let harness = Arc::clone(&harness);
        writers.spawn(async move {
            let client = Arc::new(());
            for number in 0..PUTS {
                let body = format!("body {writer} {number}");
                let put = harness.put(&format!("{writer}/{number}"), body.as_bytes(), &client);
                harness.engine.put_object(put).await.expect("stored");
            }
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer.expect("a writer");
    }
    let commits = harness.catalog.effort().commits - before.commits;
    println!("{} PUTs by {WRITERS} writers took {commits} commits", WRITERS * PUTS);
    assert!(commits * 2 < (WRITERS * PUTS) as u64, "{commits} commits");
}

/// The README says what an idle store costs; each of these calls is one request there.
#[tokio::test]
async fn raising_a_mark_makes_seven_backend_calls() {
    let harness = Harness::new(u64::MAX, Mode::Threaded).await;
    for _ in 0..3 {
        let calls = harness.flaky.calls();
        harness.process.identity.tick(&mut Report::default()).await.expect("raised");
        assert_eq!(harness.flaky.calls() - calls, 7);
    }
}
