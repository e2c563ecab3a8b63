//! Objects that expire, put to the test: two of them with one content, and a worker that dies.

pub(super) mod once;

use std::sync::Arc;
use std::time::Duration;

use s3o_catalog::Expiries as _;
use s3o_engine::digest::md5_of;
use s3o_engine::{CopyObject, Declared, Error, PutObject};
use s3o_model::expiry::Expiry;
use s3o_model::ids::ClaimToken;
use s3o_model::intent::DeclaredDigests;
use s3o_workers::Report;

use super::{LARGE, Scenario, Work, holds, nothing};
use crate::house::{Expected, House, copy};
use crate::world::STUCK_AFTER;

/// What a minute is enough for.
const BRIEF: Duration = Duration::from_mins(1);

async fn put_brief(house: &House) -> Result<(), Error> {
    let (client, body) = (Arc::new(()), b"brief body");
    let digests = DeclaredDigests { md5: Some(md5_of(body)), ..DeclaredDigests::default() };
    let declared = Declared { digests, ..Declared::default() };
    let put = PutObject { declared, expiry: Some(Expiry::After(BRIEF)), ..house.put("a", body, &client) };
    house.engine.put_object(put).await.map(drop)
}

pub(super) async fn copy_to_b(house: &House, expiry: Option<Expiry>) -> Result<(), Error> {
    house.engine.copy_object(CopyObject { expiry, ..copy("a", "b") }).await.map(drop)
}

/// Lets a minute pass, and what has expired then go.
async fn expire(house: &House) -> Result<(), Error> {
    house.clock.advance(BRIEF);
    tick(house, "expiry").await
}

/// Whatever becomes of the write: when its time has passed, it is gone and so are its bytes.
fn put_that_expires(house: &House) -> Work<'_> {
    Box::pin(put_brief(house))
}

/// Two objects, one content; one of them expires.
fn one_of_two_expires(house: &House) -> Work<'_> {
    Box::pin(async {
        put_brief(house).await?;
        copy_to_b(house, None).await?;
        expire(house).await
    })
}

/// Two objects, one content; both expire.
fn both_expire(house: &House) -> Work<'_> {
    Box::pin(async {
        put_brief(house).await?;
        copy_to_b(house, Some(Expiry::After(BRIEF))).await?;
        expire(house).await
    })
}

/// A worker claims and dies; the watchdog frees what it held; the next one removes it.
fn expiry_that_was_stuck(house: &House) -> Work<'_> {
    Box::pin(async {
        put_brief(house).await?;
        copy_to_b(house, None).await?;
        house.clock.advance(BRIEF);
        let away = |error: s3o_catalog::Error| Error::Away(error.to_string());
        let token = ClaimToken::new(house.process.ids().fresh());
        house.catalog.claim_expiries(token, 9).await.map_err(away)?;
        house.clock.advance(STUCK_AFTER);
        tick(house, "watchdog").await?;
        expire(house).await
    })
}

async fn tick(house: &House, worker: &str) -> Result<(), Error> {
    let ticked = house.process.worker(worker).tick(&mut Report::default()).await;
    ticked.map_err(|error| Error::Away(error.to_string()))
}

/// What `a` and `b` hold.
fn both(a: Option<&[u8]>, b: Option<&[u8]>) -> Expected {
    let mut expected = holds("a", a);
    expected.extend(holds("b", b));
    expected
}

/// All of them.
pub(super) const ALL: [Scenario; 4] = [
    Scenario {
        name: "put that expires",
        heavy: false,
        dedup: false,
        put_bytes_max: LARGE,
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
        prepare: nothing,
        act: both_expire,
        after: || both(None, None),
        before: || both(None, None),
    },
    Scenario {
        name: "expiry that was stuck",
        heavy: false,
        dedup: false,
        put_bytes_max: LARGE,
        prepare: nothing,
        act: expiry_that_was_stuck,
        after: || both(None, Some(b"brief body")),
        before: || both(None, None),
    },
];
