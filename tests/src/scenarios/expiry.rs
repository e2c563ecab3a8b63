//! Objects that expire: two with one content, and an expiry worker that dies with a claim.

pub(super) mod shared_content;

use std::sync::Arc;
use std::time::Duration;

use s3o_engine::digest::md5_of;
use s3o_engine::{CopyObject, Declared, Error, PutObject};
use s3o_model::expiry::Expiry;
use s3o_model::ids::ClaimToken;
use s3o_model::intent::DeclaredDigests;
use s3o_workers::Report;

use super::{LARGE, Scenario, Work, holds, nothing};
use crate::environment::STUCK_AFTER;
use crate::harness::{Expected, Harness, copy};

const LIFETIME: Duration = Duration::from_mins(1);

async fn put_expiring(harness: &Harness) -> Result<(), Error> {
    let (client, body) = (Arc::new(()), b"brief body");
    let digests = DeclaredDigests { md5: Some(md5_of(body)), ..DeclaredDigests::default() };
    let declared = Declared { digests, ..Declared::default() };
    let put = PutObject { declared, expiry: Some(Expiry::After(LIFETIME)), ..harness.put("a", body, &client) };
    harness.engine.put_object(put).await.map(drop)
}

pub(super) async fn copy_to_b(harness: &Harness, expiry: Option<Expiry>) -> Result<(), Error> {
    harness.engine.copy_object(CopyObject { expiry, ..copy("a", "b") }).await.map(drop)
}

/// Advances the clock beyond the expiry and runs the expiry worker.
async fn expire(harness: &Harness) -> Result<(), Error> {
    harness.clock.advance(LIFETIME);
    tick(harness, "expiry").await
}

/// Acknowledged or not: once settled, the object has expired and its bytes are deleted.
fn put_that_expires(harness: &Harness) -> Work<'_> {
    Box::pin(put_expiring(harness))
}

/// Two objects, one content; one of them expires.
fn one_of_two_expires(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        put_expiring(harness).await?;
        copy_to_b(harness, None).await?;
        expire(harness).await
    })
}

/// Two objects, one content; both expire.
fn both_expire(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        put_expiring(harness).await?;
        copy_to_b(harness, Some(Expiry::After(LIFETIME))).await?;
        expire(harness).await
    })
}

/// An expiry worker claims an object and dies; the watchdog resets the claim; the next worker deletes the object.
fn expiry_after_stuck_claim(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        put_expiring(harness).await?;
        copy_to_b(harness, None).await?;
        harness.clock.advance(LIFETIME);
        let away = |error: s3o_catalog::Error| Error::Away(error.to_string());
        let token = ClaimToken::new(harness.process.ids().fresh());
        harness.catalog.claim_expiries(token, 9).await.map_err(away)?;
        harness.clock.advance(STUCK_AFTER);
        tick(harness, "watchdog").await?;
        expire(harness).await
    })
}

pub(super) async fn tick(harness: &Harness, worker: &str) -> Result<(), Error> {
    let ticked = harness.process.worker(worker).tick(&mut Report::default()).await;
    ticked.map_err(|error| Error::Away(error.to_string()))
}

/// Allowed bodies of `a` and `b`.
fn both(a: Option<&[u8]>, b: Option<&[u8]>) -> Expected {
    let mut expected = holds("a", a);
    expected.extend(holds("b", b));
    expected
}

pub(super) const ALL: [Scenario; 4] = [
    Scenario {
        name: "put that expires",
        heavy: false,
        dedup: false,
        put_bytes_max: LARGE,
        copies: 1,
        prepare: nothing,
        act: put_that_expires,
        after: || holds("a", None),
        before: || holds("a", None),
    },
    Scenario {
        name: "expiry of one of two",
        heavy: false,
        dedup: false,
        put_bytes_max: LARGE,
        copies: 1,
        prepare: nothing,
        act: one_of_two_expires,
        after: || both(None, Some(b"brief body")),
        before: || both(None, None),
    },
    Scenario {
        name: "expiry of both",
        heavy: false,
        dedup: false,
        put_bytes_max: LARGE,
        copies: 1,
        prepare: nothing,
        act: both_expire,
        after: || both(None, None),
        before: || both(None, None),
    },
    Scenario {
        name: "expiry after a stuck claim",
        heavy: false,
        dedup: false,
        put_bytes_max: LARGE,
        copies: 1,
        prepare: nothing,
        act: expiry_after_stuck_claim,
        after: || both(None, Some(b"brief body")),
        before: || both(None, None),
    },
];
