//! Objects with one content in a bucket with dedup: the bytes are deleted when the last of them expires. With one
//! expiry worker, with two at the same time, and with one whose claim was reset.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use s3o_engine::digest::md5_of;
use s3o_engine::{Declared, Error, PutObject};
use s3o_model::expiry::Expiry;
use s3o_model::ids::ClaimToken;
use s3o_model::intent::DeclaredDigests;
use s3o_workers::{Report, Worker};

use super::tick;
use crate::environment::STUCK_AFTER;
use crate::harness::{Expected, Harness, get};
use crate::scenarios::{LARGE, Scenario, Work, holds, nothing};

const BODY: &[u8] = b"one body for all";
const MINUTE: Duration = Duration::from_mins(1);

/// Stores the body under this key; None never expires.
async fn put(harness: &Harness, name: &str, lifetime: Option<Duration>) -> Result<(), Error> {
    let client = Arc::new(());
    let digests = DeclaredDigests { md5: Some(md5_of(BODY)), ..DeclaredDigests::default() };
    let declared = Declared { digests, ..Declared::default() };
    let put = PutObject { declared, expiry: lifetime.map(Expiry::After), ..harness.put(name, BODY, &client) };
    harness.engine.put_object(put).await.map(drop)
}

/// Advances the clock by a minute and runs the expiry worker and cleanup.
async fn pass_a_minute(harness: &Harness) -> Result<(), Error> {
    harness.clock.advance(MINUTE);
    tick(harness, "expiry").await?;
    tick(harness, "cleanup").await
}

/// Asserts that an object that has not expired is readable after others with its content expired.
async fn is_whole(harness: &Harness, name: &str) -> Result<(), Error> {
    let mut opened = match harness.engine.get_object(get(name)).await {
        Err(Error::NoSuchKey | Error::Damaged(_)) => panic!("{name} was deleted with another object"),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    while let Some(chunk) = opened.body.next().await {
        bytes.extend_from_slice(&chunk.map_err(|error| Error::Away(error.to_string()))?);
    }
    assert_eq!(bytes, BODY, "{name}");
    Ok(())
}

fn one_after_the_other(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        put(harness, "a", Some(MINUTE)).await?;
        put(harness, "b", Some(2 * MINUTE)).await?;
        pass_a_minute(harness).await?;
        is_whole(harness, "b").await?;
        pass_a_minute(harness).await
    })
}

async fn tick_until_done(worker: &dyn Worker) -> Result<(), Error> {
    loop {
        let mut report = Report::default();
        worker.tick(&mut report).await.map_err(|error| Error::Away(error.to_string()))?;
        if !report.more {
            return Ok(());
        }
    }
}

/// Two of three objects expire, and two workers claim them at the same time.
fn two_workers_race(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        put(harness, "a", Some(MINUTE)).await?;
        put(harness, "b", Some(MINUTE)).await?;
        put(harness, "c", None).await?;
        harness.clock.advance(MINUTE);
        let (one, other) = (harness.process.expiry(1), harness.process.expiry(2));
        let (one, other) = tokio::join!(tick_until_done(&one), tick_until_done(&other));
        one.and(other)?;
        tick(harness, "cleanup").await?;
        is_whole(harness, "c").await
    })
}

/// The watchdog resets the claim of a slow worker, which continues at the same time as the next worker.
fn slow_worker_races_next(harness: &Harness) -> Work<'_> {
    Box::pin(async {
        put(harness, "a", Some(MINUTE)).await?;
        put(harness, "c", None).await?;
        harness.clock.advance(MINUTE);
        let away = |error: s3o_catalog::Error| Error::Away(error.to_string());
        let token = ClaimToken::new(harness.process.ids().fresh());
        harness.catalog.claim_expiries(token, 9).await.map_err(away)?;
        harness.clock.advance(STUCK_AFTER);
        tick(harness, "watchdog").await?;
        let (slow, next) = tokio::join!(harness.catalog.remove_claimed(token), tick(harness, "expiry"));
        slow.map_err(away)?;
        next?;
        tick(harness, "cleanup").await?;
        is_whole(harness, "c").await
    })
}

fn all_deleted() -> Expected {
    ["a", "b", "c"].into_iter().flat_map(|name| holds(name, None)).collect()
}

fn only_c_remains() -> Expected {
    let mut expected = all_deleted();
    expected.extend(holds("c", Some(BODY)));
    expected
}

const fn expiring(name: &'static str, act: for<'a> fn(&'a Harness) -> Work<'a>, after: fn() -> Expected) -> Scenario {
    let (heavy, dedup, put_bytes_max, copies) = (false, true, LARGE, 1);
    Scenario { name, heavy, dedup, put_bytes_max, copies, prepare: nothing, act, after, before: all_deleted }
}

pub(in crate::scenarios) const ALL: [Scenario; 3] = [
    expiring("two objects with one content expire one after the other", one_after_the_other, all_deleted),
    expiring("two objects with one content expire, two workers", two_workers_race, only_c_remains),
    expiring(
        "one object with shared content expires, a slow worker and the next",
        slow_worker_races_next,
        only_c_remains,
    ),
];
