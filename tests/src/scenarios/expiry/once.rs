//! Two objects, one content: one expires and the bytes stay, the other expires and they go. In a bucket that keeps
//! equal content once, with one worker, with two at the same time, and with one that was too slow.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use s3o_catalog::Expiries as _;
use s3o_engine::digest::md5_of;
use s3o_engine::{Declared, Error, PutObject};
use s3o_model::expiry::Expiry;
use s3o_model::ids::ClaimToken;
use s3o_model::intent::DeclaredDigests;
use s3o_workers::{Report, Worker};

use super::tick;
use crate::house::{Expected, House, get};
use crate::scenarios::{LARGE, Scenario, Work, holds, nothing};
use crate::world::STUCK_AFTER;

const BODY: &[u8] = b"one body for all";
const MINUTE: Duration = Duration::from_mins(1);

/// The same body under another key, for so long.
async fn put(house: &House, name: &str, live: Option<Duration>) -> Result<(), Error> {
    let client = Arc::new(());
    let digests = DeclaredDigests { md5: Some(md5_of(BODY)), ..DeclaredDigests::default() };
    let declared = Declared { digests, ..Declared::default() };
    let put = PutObject { declared, expiry: live.map(Expiry::After), ..house.put(name, BODY, &client) };
    house.engine.put_object(put).await.map(drop)
}

/// Lets a minute pass, what has expired then go, and its bytes, if nobody has them any more.
async fn pass_a_minute(house: &House) -> Result<(), Error> {
    house.clock.advance(MINUTE);
    tick(house, "expiry").await?;
    tick(house, "cleanup").await
}

/// An object that has not expired is whole, whatever went beside it.
async fn is_whole(house: &House, name: &str) -> Result<(), Error> {
    let mut opened = match house.engine.get_object(get(name)).await {
        Err(Error::NoSuchKey | Error::Damaged(_)) => panic!("{name} went with the other"),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    while let Some(chunk) = opened.body.next().await {
        bytes.extend_from_slice(&chunk.map_err(|error| Error::Away(error.to_string()))?);
    }
    assert_eq!(bytes, BODY, "{name}");
    Ok(())
}

/// One expires, the bytes stay; the other expires, they go.
fn one_after_the_other(house: &House) -> Work<'_> {
    Box::pin(async {
        put(house, "a", Some(MINUTE)).await?;
        put(house, "b", Some(2 * MINUTE)).await?;
        pass_a_minute(house).await?;
        is_whole(house, "b").await?;
        pass_a_minute(house).await
    })
}

async fn run_out(worker: &dyn Worker) -> Result<(), Error> {
    loop {
        let mut report = Report::default();
        worker.tick(&mut report).await.map_err(|error| Error::Away(error.to_string()))?;
        if !report.more {
            return Ok(());
        }
    }
}

/// Two of three expire, and two workers see that at the same moment.
fn two_workers_race(house: &House) -> Work<'_> {
    Box::pin(async {
        put(house, "a", Some(MINUTE)).await?;
        put(house, "b", Some(MINUTE)).await?;
        put(house, "c", None).await?;
        house.clock.advance(MINUTE);
        let (one, other) = (house.process.expiry(1), house.process.expiry(2));
        let (one, other) = tokio::join!(run_out(&one), run_out(&other));
        one.and(other)?;
        tick(house, "cleanup").await?;
        is_whole(house, "c").await
    })
}

/// A worker is so slow that its claim is taken from it, and goes on in the same moment as the next one.
fn the_slow_meets_the_next(house: &House) -> Work<'_> {
    Box::pin(async {
        put(house, "a", Some(MINUTE)).await?;
        put(house, "c", None).await?;
        house.clock.advance(MINUTE);
        let away = |error: s3o_catalog::Error| Error::Away(error.to_string());
        let token = ClaimToken::new(house.process.ids().fresh());
        house.catalog.claim_expiries(token, 9).await.map_err(away)?;
        house.clock.advance(STUCK_AFTER);
        tick(house, "watchdog").await?;
        let (slow, next) = tokio::join!(house.catalog.remove_claimed(token), tick(house, "expiry"));
        slow.map_err(away)?;
        next?;
        tick(house, "cleanup").await?;
        is_whole(house, "c").await
    })
}

fn all_gone() -> Expected {
    ["a", "b", "c"].into_iter().flat_map(|name| holds(name, None)).collect()
}

fn only_c_stays() -> Expected {
    let mut expected = all_gone();
    expected.extend(holds("c", Some(BODY)));
    expected
}

const fn expiring(name: &'static str, act: for<'a> fn(&'a House) -> Work<'a>, after: fn() -> Expected) -> Scenario {
    let (heavy, dedup, put_bytes_max) = (false, true, LARGE);
    Scenario { name, heavy, dedup, put_bytes_max, prepare: nothing, act, after, before: all_gone }
}

/// All of them.
pub(in crate::scenarios) const ALL: [Scenario; 3] = [
    expiring("expiry of two with one content, one after the other", one_after_the_other, all_gone),
    expiring("expiry of two with one content, two workers", two_workers_race, only_c_stays),
    expiring("expiry of one with shared content, a slow worker and the next", the_slow_meets_the_next, only_c_stays),
];
