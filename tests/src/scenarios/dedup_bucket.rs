//! Scenarios on a bucket with dedup that already has the content.

use std::sync::Arc;

use md5::{Digest as _, Md5};
use s3o_engine::{Declared, PutObject};
use s3o_model::etag;
use s3o_model::intent::DeclaredDigests;
use sha2::Sha256;

use super::rules::expire_by_rule;
use super::{LARGE, Scenario, Work, delete, holds, multipart_of_one, put_old};
use crate::harness::{Expected, Harness};

const KNOWN: &[u8] = b"a known body";

/// The digest that a client declares before it sends the body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeclaredBefore {
    Nothing,
    /// Enough for `pending_reaper` to promote the write.
    Md5,
    /// Enough for dedup to find the content before the body is sent.
    Sha256,
}

async fn put(harness: &Harness, name: &str, body: &[u8], before: DeclaredBefore) -> Result<(), s3o_engine::Error> {
    let client = Arc::new(());
    let digests = DeclaredDigests {
        md5: (before == DeclaredBefore::Md5).then(|| etag::Md5(Md5::digest(body).into())),
        sha256: (before == DeclaredBefore::Sha256).then(|| etag::Sha256(Sha256::digest(body).into())),
        checksum: None,
    };
    let declared = Declared { digests, ..Declared::default() };
    harness.engine.put_object(PutObject { declared, ..harness.put(name, body, &client) }).await.map(drop)
}

fn known(harness: &Harness) -> Work<'_> {
    Box::pin(put(harness, "b", KNOWN, DeclaredBefore::Nothing))
}

/// The only copy is marked suspect, but its bytes are right, so that reads succeed in every outcome.
fn suspected(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        put(harness, "b", KNOWN, DeclaredBefore::Nothing).await?;
        harness.change("UPDATE object_locations SET state = 'suspect'").await;
        Ok(())
    })
}

fn known_twice(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        put(harness, "a", KNOWN, DeclaredBefore::Nothing).await?;
        put(harness, "b", KNOWN, DeclaredBefore::Nothing).await
    })
}

fn known_under_same_key(harness: &Harness) -> Work<'_> {
    Box::pin(put(harness, "a", KNOWN, DeclaredBefore::Nothing))
}

fn known_tail(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        put_old(harness).await?;
        put(harness, "b", b"tail", DeclaredBefore::Nothing).await
    })
}

fn put_with_sha256(harness: &Harness) -> Work<'_> {
    Box::pin(put(harness, "a", KNOWN, DeclaredBefore::Sha256))
}

fn put_with_md5(harness: &Harness) -> Work<'_> {
    Box::pin(put(harness, "a", KNOWN, DeclaredBefore::Md5))
}

fn put_without_digest(harness: &Harness) -> Work<'_> {
    Box::pin(put(harness, "a", KNOWN, DeclaredBefore::Nothing))
}

fn with_known(mut expected: Expected) -> Expected {
    expected.insert("b", vec![Some(KNOWN.to_vec())]);
    expected
}

/// A write of content that the bucket already has under another key.
const fn write(name: &'static str, act: for<'a> fn(&'a Harness) -> Work<'a>) -> Scenario {
    Scenario {
        name,
        heavy: false,
        dedup: true,
        put_bytes_max: LARGE,
        copies: 1,
        prepare: known,
        act,
        after: || with_known(holds("a", Some(KNOWN))),
        before: || with_known(holds("a", None)),
    }
}

/// A write of the content that the key already has.
const fn rewrite(name: &'static str, act: for<'a> fn(&'a Harness) -> Work<'a>) -> Scenario {
    Scenario {
        name,
        prepare: known_under_same_key,
        after: || holds("a", Some(KNOWN)),
        before: || holds("a", Some(KNOWN)),
        ..write(name, act)
    }
}

pub(super) const ALL: [Scenario; 11] = [
    write("put of known content with SHA-256", put_with_sha256),
    write("put of known content with MD5", put_with_md5),
    write("put of known content", put_without_digest),
    rewrite("overwrite with equal content and SHA-256", put_with_sha256),
    rewrite("overwrite with equal content", put_without_digest),
    Scenario { prepare: suspected, ..write("put over a suspect copy with SHA-256", put_with_sha256) },
    Scenario { prepare: suspected, ..write("put over a suspect copy with MD5", put_with_md5) },
    Scenario { prepare: suspected, ..write("put over a suspect copy", put_without_digest) },
    Scenario {
        prepare: known_twice,
        after: || with_known(holds("a", None)),
        before: || with_known(holds("a", Some(KNOWN))),
        ..write("delete of one of two references", delete)
    },
    Scenario {
        prepare: known_twice,
        after: || with_known(holds("a", None)),
        before: || with_known(holds("a", Some(KNOWN))),
        ..write("expiration of one of two references", expire_by_rule)
    },
    Scenario {
        prepare: known_tail,
        after: || holds("a", Some(b"tail")),
        before: || holds("a", Some(b"old body")),
        ..write("multipart of a known part", multipart_of_one)
    },
];
