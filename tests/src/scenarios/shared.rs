//! The operations in a bucket that keeps equal content once, on content that is there.

use std::sync::Arc;

use md5::{Digest as _, Md5};
use s3o_engine::{Declared, PutObject};
use s3o_model::etag;
use s3o_model::intent::DeclaredDigests;
use sha2::Sha256;

use super::rules::expire_by_rule;
use super::{LARGE, Scenario, Work, delete, holds, multipart_of_one, put_old};
use crate::house::{Expected, House};

const KNOWN: &[u8] = b"a known body";

/// What the sender says of a body before it sends it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    /// Enough for the reaper to finish the write.
    Md5,
    /// Enough to find the same content.
    Sha256,
}

async fn put(house: &House, name: &str, body: &[u8], said: Said) -> Result<(), s3o_engine::Error> {
    let client = Arc::new(());
    let digests = DeclaredDigests {
        md5: (said == Said::Md5).then(|| etag::Md5(Md5::digest(body).into())),
        sha256: (said == Said::Sha256).then(|| etag::Sha256(Sha256::digest(body).into())),
        checksum: None,
    };
    let declared = Declared { digests, ..Declared::default() };
    house.engine.put_object(PutObject { declared, ..house.put(name, body, &client) }).await.map(drop)
}

fn known(house: &House) -> Work<'_> {
    Box::pin(put(house, "b", KNOWN, Said::Nothing))
}

/// Somebody took its copy for a bad one; it is not, so that it is read whatever happens.
fn suspected(house: &House) -> Work<'_> {
    Box::pin(async {
        put(house, "b", KNOWN, Said::Nothing).await?;
        house.change("UPDATE object_locations SET state = 'suspect'").await;
        Ok(())
    })
}

fn known_twice(house: &House) -> Work<'_> {
    Box::pin(async {
        put(house, "a", KNOWN, Said::Nothing).await?;
        put(house, "b", KNOWN, Said::Nothing).await
    })
}

fn known_under_the_key(house: &House) -> Work<'_> {
    Box::pin(put(house, "a", KNOWN, Said::Nothing))
}

fn known_tail(house: &House) -> Work<'_> {
    Box::pin(async {
        put_old(house).await?;
        put(house, "b", b"tail", Said::Nothing).await
    })
}

fn announced(house: &House) -> Work<'_> {
    Box::pin(put(house, "a", KNOWN, Said::Sha256))
}

fn declared(house: &House) -> Work<'_> {
    Box::pin(put(house, "a", KNOWN, Said::Md5))
}

fn undeclared(house: &House) -> Work<'_> {
    Box::pin(put(house, "a", KNOWN, Said::Nothing))
}

fn with_known(mut expected: Expected) -> Expected {
    expected.insert("b", vec![Some(KNOWN.to_vec())]);
    expected
}

/// A write of content that the bucket has under another key.
const fn write(name: &'static str, act: for<'a> fn(&'a House) -> Work<'a>) -> Scenario {
    Scenario {
        name,
        heavy: false,
        dedup: true,
        put_bytes_max: LARGE,
        prepare: known,
        act,
        after: || with_known(holds("a", Some(KNOWN))),
        before: || with_known(holds("a", None)),
    }
}

/// A write of what is there already.
const fn rewrite(name: &'static str, act: for<'a> fn(&'a House) -> Work<'a>) -> Scenario {
    Scenario {
        name,
        prepare: known_under_the_key,
        after: || holds("a", Some(KNOWN)),
        before: || holds("a", Some(KNOWN)),
        ..write(name, act)
    }
}

/// All of them.
pub(super) const ONCE: [Scenario; 11] = [
    write("put of known content, announced", announced),
    write("put of known content, finished by whoever finds it", declared),
    write("put of known content", undeclared),
    rewrite("overwrite by the same, announced", announced),
    rewrite("overwrite by the same", undeclared),
    Scenario { prepare: suspected, ..write("put over a suspect copy, announced", announced) },
    Scenario { prepare: suspected, ..write("put over a suspect copy, finished by whoever finds it", declared) },
    Scenario { prepare: suspected, ..write("put over a suspect copy", undeclared) },
    Scenario {
        prepare: known_twice,
        after: || with_known(holds("a", None)),
        before: || with_known(holds("a", Some(KNOWN))),
        ..write("delete of one of two", delete)
    },
    Scenario {
        prepare: known_twice,
        after: || with_known(holds("a", None)),
        before: || with_known(holds("a", Some(KNOWN))),
        ..write("expiry of one of two", expire_by_rule)
    },
    Scenario {
        prepare: known_tail,
        after: || holds("a", Some(b"tail")),
        before: || holds("a", Some(b"old body")),
        ..write("multipart of a known part", multipart_of_one)
    },
];
