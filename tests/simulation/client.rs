//! A client: it picks requests by chance, may hang up, and holds every answer against the ledger.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures_util::stream::unfold;
use parking_lot::{Mutex, MutexGuard};
use s3o_engine::multipart::Completed;
use s3o_engine::{BodyError, ByteStream, Copied, Engine, Error, Stored};
use s3o_model::clock::{Clock as _, Timestamp};
use s3o_model::etag::ETag;
use s3o_model::expiry::Expiry;
use s3o_model::lifecycle::DepartsBy;
use s3o_model::names::{BucketName, ObjectKey};

use crate::journal::Journal;
use crate::ledger::{HUGE, Ledger, SMALL};
use crate::model::{Body, Condition, Request, Write};
use crate::sky::{Mark, Sky};
use crate::uploads::OpenUpload;

/// What a client keeps over restarts of the server.
pub struct Memory {
    pub number: usize,
    pub rng: Rng,
    pub uploads: Vec<OpenUpload>,
}

/// What all clients share.
pub struct Town {
    pub ledger: Mutex<Ledger>,
    pub sky: Arc<Sky>,
    pub journal: Journal,
    /// Operations that are still to be started.
    pub budget: Mutex<u64>,
    /// Whose turn it is to change rules.
    pub rules: tokio::sync::Mutex<()>,
    /// Whether there are five mebibytes to copy parts from.
    pub has_big: bool,
    /// Whether the bucket keeps equal content once.
    pub dedup: bool,
}

impl Town {
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock()
    }

    /// Takes one operation off the budget.
    fn take(&self) -> bool {
        let mut budget = self.budget.lock();
        let left = *budget > 0;
        *budget -= u64::from(left);
        left
    }

    /// How many operations are left.
    pub fn left(&self) -> u64 {
        *self.budget.lock()
    }
}

/// A client at work.
#[derive(Clone)]
pub struct Client {
    pub town: Arc<Town>,
    pub memory: Arc<Mutex<Memory>>,
    pub engine: Engine,
}

pub fn bucket() -> BucketName {
    "bucket".parse().expect("a name")
}

pub fn object_key(key: &str) -> ObjectKey {
    key.parse().expect("a key")
}

/// What a request came to: an answer, or nothing because the client hung up.
pub type Answer<T> = Option<Result<T, Error>>;
/// The same, looked at.
pub type Seen<'a, T> = Option<&'a Result<T, Error>>;

impl Client {
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }

    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.memory().rng)
    }

    pub fn one_of(&self, many: u64) -> bool {
        self.draw(|rng| rng.u64(..many)) == 0
    }

    pub fn pick(&self, keys: &[&'static str]) -> &'static str {
        self.draw(|rng| keys[rng.usize(..keys.len())])
    }

    /// Any key, small ones mostly.
    pub fn any_key(&self) -> &'static str {
        if self.town.has_big && self.one_of(8) { self.pick(&HUGE) } else { self.pick(&SMALL) }
    }

    pub fn tell(&self, line: std::fmt::Arguments<'_>) {
        let number = self.memory().number;
        self.town.journal.tell(format_args!("client {number}: {line}"));
    }

    /// Works until the operations are used up.
    pub async fn work(self) {
        loop {
            let think = self.draw(|rng| rng.u64(..150));
            tokio::time::sleep(Duration::from_millis(think)).await;
            if !self.town.take() {
                return;
            }
            self.town.journal.count("operations");
            self.operate().await;
            self.bury_ghosts();
        }
    }

    async fn operate(&self) {
        match self.draw(|rng| rng.u8(..100)) {
            0..26 => self.put().await,
            26..30 => self.put_with_a_wrong_digest().await,
            30..46 => self.get().await,
            46..52 => self.head().await,
            52..57 => self.list().await,
            57..67 => self.delete().await,
            67..71 => self.delete_many().await,
            71..79 => self.copy().await,
            79..82 => self.change_rules().await,
            _ => self.multipart().await,
        }
    }

    /// Sends a request; an impatient client hangs up, and its future is dropped there.
    pub async fn send<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Answer<T> {
        let patience = self.draw(|rng| (rng.u8(..14) == 0).then(|| rng.u64(..40)));
        let answer = match patience {
            None => Some(work.await),
            Some(millis) => tokio::time::timeout(Duration::from_millis(millis), work).await.ok(),
        };
        if answer.is_none() {
            self.town.journal.count("fault client gone");
            self.tell(format_args!("hangs up"));
        }
        if let Some(Err(Error::Internal(why))) = &answer {
            panic!("an internal error: {why}");
        }
        answer
    }

    /// When no request's work is under way, what nobody waits for any more has come to its end.
    fn bury_ghosts(&self) {
        if self.engine.tasks().count() == 0 {
            let mut ledger = self.town.ledger();
            let abandoned = std::mem::take(&mut ledger.abandoned);
            for request in abandoned {
                ledger.lost(request);
            }
        }
    }

    /// A body that nobody else sends; where equal content is kept once, often one that everybody sends.
    pub fn bytes(&self, what: &str) -> Bytes {
        const COMMON: [usize; 4] = [0, 7, 40, 1800];
        if self.town.dedup && !self.one_of(3) {
            let (which, size) = self.draw(|rng| (rng.u8(b'a'..=b'b'), COMMON[rng.usize(..COMMON.len())]));
            return Bytes::from(vec![which; size]);
        }
        self.fresh_bytes(what)
    }

    fn fresh_bytes(&self, what: &str) -> Bytes {
        let size = self.draw(|rng| match rng.u8(..10) {
            0 => 0,
            1..6 => rng.usize(1..60),
            6..9 => rng.usize(60..1500),
            _ => rng.usize(1500..6000),
        });
        let number = self.memory().number;
        let mark = self.draw(|rng| rng.u64(..));
        let line = format!("{mark:016x} {what} of client {number};");
        Bytes::from(line.bytes().cycle().take(size).collect::<Vec<u8>>())
    }

    /// A body in a few chunks with pauses; it breaks off when the client hangs up.
    pub fn stream(&self, bytes: &Bytes, token: &Arc<()>) -> ByteStream {
        let (pieces, pause) = self.draw(|rng| (rng.usize(1..4), rng.u64(..6)));
        let size = bytes.len().div_ceil(pieces).max(1);
        let chunks: Vec<Bytes> = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
        let state = (chunks.into_iter(), Arc::downgrade(token));
        Box::pin(unfold(state, move |(mut chunks, token)| async move {
            if pause > 0 {
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            if token.upgrade().is_none() {
                return Some((Err(BodyError::Broken("the client hung up".to_owned())), (chunks, token)));
            }
            chunks.next().map(|chunk| (Ok(chunk), (chunks, token)))
        }))
    }

    pub fn condition(&self, key: &'static str) -> Condition {
        match self.draw(|rng| rng.u8(..8)) {
            0 => Condition::IfAbsent,
            1 => self.town.ledger().guess(key).map_or(Condition::IfAbsent, Condition::IfMatch),
            _ => Condition::Always,
        }
    }

    /// When what is written is to be gone, mostly never: within moments, in a while, or when the clock has jumped.
    pub fn expiry(&self) -> Option<Expiry> {
        let millis = self.draw(|rng| match rng.u8(..16) {
            0 | 1 => Some(rng.u64(1..500)),
            2 => Some(rng.u64(500..10_000)),
            3 => Some(rng.u64(10_000..900_000)),
            _ => None,
        });
        let live = Duration::from_millis(millis?);
        Some(if self.one_of(2) { Expiry::After(live) } else { Expiry::At(self.town.sky.now().after(live)) })
    }

    /// Nobody who set out then is shown what had expired before.
    pub fn check_end(&self, key: &str, since: Mark, expires_at: Option<Timestamp>) {
        let Some(moment) = expires_at else { return };
        let shown = self.town.sky.shown_since(since);
        assert!(*shown.start() < moment, "{key} was seen from {} on and had expired at {moment}", shown.start());
    }

    /// Holds the answer to a write against the ledger; says whether it was acknowledged.
    pub fn settle<T: Told>(&self, sent: &SentWrite, answer: Seen<'_, T>) -> bool {
        let mut ledger = self.town.ledger();
        match answer {
            Some(Ok(told)) => {
                let value = told.etag().map(|etag| ledger.known(etag));
                if let Some(moment) = told.expires_at() {
                    ledger.told(sent.write, moment);
                }
                ledger.answered(sent.write, |_, seen| seen == value);
                ledger.lost(sent.judged);
                self.town.journal.count("writes acknowledged");
                return true;
            }
            Some(Err(Error::PreconditionFailed(_) | Error::NoSuchKey)) => {
                ledger.refused(sent.write);
                let condition = sent.condition.clone();
                ledger.answered(sent.judged, |_, seen| !condition.holds(seen));
                self.town.journal.count("writes refused by their condition");
            }
            Some(Err(Error::NoRoom | Error::Body(_) | Error::Parts(_) | Error::NoSuchUpload)) => {
                ledger.refused(sent.write);
                ledger.lost(sent.judged);
                self.town.journal.count("writes refused");
            }
            Some(Err(Error::Expiry(_))) => {
                ledger.refused(sent.write);
                ledger.lost(sent.judged);
                self.town.journal.count("writes too late to expire");
            }
            Some(Err(_)) => {
                ledger.lost(sent.write);
                ledger.lost(sent.judged);
                self.town.journal.count("writes of unknown fate");
            }
            None => {
                ledger.abandoned.push(sent.write);
                ledger.lost(sent.judged);
            }
        }
        false
    }

    pub fn sends(&self, key: &'static str, write: Write) -> SentWrite {
        let (mut ledger, condition) = (self.town.ledger(), write.condition.clone());
        let write = ledger.write(key, write);
        SentWrite { write, judged: ledger.read(key), condition }
    }

    pub fn learn(&self, bytes: Bytes) -> Body {
        self.town.ledger().bodies.learn_whole(bytes)
    }
}

/// A write that is under way: its effect, and the look at what was there that judges its condition.
pub struct SentWrite {
    pub write: Request,
    pub judged: Request,
    pub condition: Condition,
}

/// What the answer to a write says of what is there now.
pub trait Told {
    fn etag(&self) -> Option<&ETag>;
    /// When it expires, unless a rule that comes first hides that.
    fn expires_at(&self) -> Option<Timestamp>;
}

/// A delete.
impl Told for () {
    fn etag(&self) -> Option<&ETag> {
        None
    }

    fn expires_at(&self) -> Option<Timestamp> {
        None
    }
}

macro_rules! told {
    ($($answer:ty),+) => {
        $(impl Told for $answer {
            fn etag(&self) -> Option<&ETag> {
                Some(&self.etag)
            }

            fn expires_at(&self) -> Option<Timestamp> {
                self.departure.as_ref().filter(|departure| departure.by == DepartsBy::Expiry).map(|first| first.at)
            }
        })+
    };
}

told!(Stored, Copied, Completed);
