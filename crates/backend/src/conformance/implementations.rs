//! Runs the conformance tests on every implementation.

use std::future::{Ready, ready};
use std::sync::Arc;

use s3o_model::clock::SystemClock;
use s3o_model::entropy::{Entropy, SystemEntropy};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::s3::{PUT_BYTES_MAX, Secret};
use crate::{Fs, FsOptions, Memory, S3, S3Options, SharedBackend};

fn memory_subject() -> Ready<(SharedBackend, ())> {
    ready((Arc::new(Memory::new("memory".parse().expect("valid"))), ()))
}

fn versioned_memory_subject() -> Ready<(SharedBackend, ())> {
    ready((Arc::new(Memory::new("memory".parse().expect("valid")).with_versions()), ()))
}

fn fs_subject() -> Ready<(SharedBackend, TempDir)> {
    let folder = tempfile::tempdir().expect("a folder");
    let fs = Fs::open("disk".parse().expect("valid"), folder.path().to_owned(), FsOptions::default());
    ready((Arc::new(fs), folder))
}

/// Bucket that all tests of a run share.
static BUCKET: OnceCell<String> = OnceCell::const_new();

fn setting(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run through `make test`, which starts a service"))
}

/// Connects to the S3 service that the test script started.
pub(crate) fn connect(bucket: &str) -> S3 {
    let options = S3Options {
        endpoint: setting("S3O_TEST_S3_ENDPOINT"),
        region: "us-east-1".to_owned(),
        bucket: bucket.to_owned(),
        access_key_id: setting("S3O_TEST_S3_ACCESS_KEY"),
        secret_access_key: Secret::new(setting("S3O_TEST_S3_SECRET_KEY")),
        path_style: true,
        put_bytes_max: PUT_BYTES_MAX,
        create_bucket: false,
    };
    let name = "bucket".parse().expect("valid");
    S3::connect(name, &options, Arc::new(SystemClock), Arc::new(SystemEntropy)).expect("an endpoint")
}

async fn s3_subject() -> (SharedBackend, ()) {
    let bucket = BUCKET.get_or_init(|| async {
        let bucket = format!("s3o-conformance-{:016x}", SystemEntropy.next_u64());
        connect(&bucket).create_bucket().await.expect("a bucket");
        bucket
    });
    (Arc::new(connect(bucket.await)), ())
}

mod memory {
    crate::conformance!(crate::conformance::implementations::memory_subject);
}

mod versioned_memory {
    crate::conformance!(crate::conformance::implementations::versioned_memory_subject);
}

mod fs {
    crate::conformance!(crate::conformance::implementations::fs_subject);
}

mod s3 {
    crate::conformance!(crate::conformance::implementations::s3_subject);
}
