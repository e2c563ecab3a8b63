//! A client: it draws requests at random, may disconnect, and compares every answer with the ledger.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures_util::stream::unfold;
use parking_lot::{Mutex, MutexGuard};
use s3o_engine::{BodyError, ByteStream, Engine, Error};
use s3o_model::clock::{Clock as _, Timestamp};
use s3o_model::expiry::Expiry;

use crate::answers::SentWrite;
use crate::clock::{ClockMark, SimulatedClock};
use crate::journal::Journal;
use crate::ledger::{ClientLedger, HUGE, SMALL};
use crate::model::{BodyId, ModelCondition, ModelWrite};
use crate::uploads::OpenUpload;

/// The state of a client; survives crashes of the server.
pub struct ClientState {
    pub number: usize,
    pub rng: Rng,
    pub uploads: Vec<OpenUpload>,
}

/// Shared by all clients of a seed.
pub struct ClientContext {
    pub ledger: Mutex<ClientLedger>,
    pub clock: Arc<SimulatedClock>,
    pub journal: Journal,
    /// Operations that are not started yet.
    pub budget: Mutex<u64>,
    /// Held by the one client that changes lifecycle rules.
    pub rules: tokio::sync::Mutex<()>,
    /// Whether the store has an object of 5 MiB to copy parts from.
    pub has_big: bool,
    /// Dedup setting of the bucket.
    pub dedup: bool,
    /// Whether a backend is written off, so that objects may be lost.
    pub writes_off: bool,
}

impl ClientContext {
    pub fn ledger(&self) -> MutexGuard<'_, ClientLedger> {
        self.ledger.lock()
    }

    /// Starts one operation; false if none is left.
    fn take(&self) -> bool {
        let mut budget = self.budget.lock();
        let left = *budget > 0;
        *budget -= u64::from(left);
        left
    }

    /// Number of operations that are not started yet.
    pub fn left(&self) -> u64 {
        *self.budget.lock()
    }
}

/// A client of one process.
#[derive(Clone)]
pub struct SimulatedClient {
    pub context: Arc<ClientContext>,
    pub state: Arc<Mutex<ClientState>>,
    pub engine: Engine,
}

/// The result of a request; None if the client disconnected before it.
pub type ClientAnswer<T> = Option<Result<T, Error>>;
pub type ClientAnswerRef<'a, T> = Option<&'a Result<T, Error>>;

impl SimulatedClient {
    pub fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock()
    }

    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.state().rng)
    }

    pub fn one_of(&self, many: u64) -> bool {
        self.draw(|rng| rng.u64(..many)) == 0
    }

    pub fn pick(&self, keys: &[&'static str]) -> &'static str {
        self.draw(|rng| keys[rng.usize(..keys.len())])
    }

    /// A random key, mostly one with small bodies.
    pub fn any_key(&self) -> &'static str {
        if self.context.has_big && self.one_of(8) { self.pick(&HUGE) } else { self.pick(&SMALL) }
    }

    pub fn record(&self, line: std::fmt::Arguments<'_>) {
        let number = self.state().number;
        self.context.journal.record(format_args!("client {number}: {line}"));
    }

    /// Runs operations until none is left.
    pub async fn work(self) {
        loop {
            let pause = self.draw(|rng| rng.u64(..150));
            tokio::time::sleep(Duration::from_millis(pause)).await;
            if !self.context.take() {
                return;
            }
            self.context.journal.count("operations");
            self.operate().await;
            self.close_abandoned();
        }
    }

    async fn operate(&self) {
        match self.draw(|rng| rng.u8(..100)) {
            0..26 => self.put().await,
            26..30 => self.put_with_wrong_digest().await,
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

    /// Sends a request; some clients disconnect early, which drops the future.
    pub async fn send<T>(&self, work: impl Future<Output = Result<T, Error>>) -> ClientAnswer<T> {
        let limit = self.draw(|rng| (rng.u8(..14) == 0).then(|| rng.u64(..40)));
        let answer = match limit {
            None => Some(work.await),
            Some(millis) => tokio::time::timeout(Duration::from_millis(millis), work).await.ok(),
        };
        if answer.is_none() {
            self.context.journal.count("fault client gone");
            self.record(format_args!("disconnects"));
        }
        if let Some(Err(Error::Internal(why))) = &answer {
            panic!("internal error: {why}");
        }
        answer
    }

    /// Once the engine runs no task, abandoned requests can have no further effect.
    fn close_abandoned(&self) {
        if self.engine.tasks().count() == 0 {
            let mut ledger = self.context.ledger();
            let abandoned = std::mem::take(&mut ledger.abandoned);
            for request in abandoned {
                ledger.lost(request);
            }
        }
    }

    /// A unique body; with dedup, often one of a few bodies that all clients send.
    pub fn bytes(&self, what: &str) -> Bytes {
        const COMMON: [usize; 4] = [0, 7, 40, 1800];
        if self.context.dedup && !self.one_of(3) {
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
        let number = self.state().number;
        let unique = self.draw(|rng| rng.u64(..));
        let line = format!("{unique:016x} {what} of client {number};");
        Bytes::from(line.bytes().cycle().take(size).collect::<Vec<u8>>())
    }

    /// A body in a few chunks with pauses; it fails once the client disconnected.
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
                return Some((Err(BodyError::Broken("the client disconnected".to_owned())), (chunks, token)));
            }
            chunks.next().map(|chunk| (Ok(chunk), (chunks, token)))
        }))
    }

    pub fn condition(&self, key: &'static str) -> ModelCondition {
        match self.draw(|rng| rng.u8(..8)) {
            0 => ModelCondition::IfAbsent,
            1 => self.context.ledger().guess(key).map_or(ModelCondition::IfAbsent, ModelCondition::IfMatch),
            _ => ModelCondition::Always,
        }
    }

    /// Mostly none; otherwise within milliseconds, within seconds, or after a jump of the clock.
    pub fn expiry(&self) -> Option<Expiry> {
        let millis = self.draw(|rng| match rng.u8(..16) {
            0 | 1 => Some(rng.u64(1..500)),
            2 => Some(rng.u64(500..10_000)),
            3 => Some(rng.u64(10_000..900_000)),
            _ => None,
        });
        let lifetime = Duration::from_millis(millis?);
        Some(if self.one_of(2) {
            Expiry::After(lifetime)
        } else {
            Expiry::At(self.context.clock.now().after(lifetime))
        })
    }

    /// Asserts that a request that started at the mark saw no object that had expired before.
    pub fn check_expiry(&self, key: &str, since: ClockMark, expires_at: Option<Timestamp>) {
        let Some(moment) = expires_at else { return };
        let range = self.context.clock.range_since(since);
        assert!(*range.start() < moment, "{key} was read after {} and had expired at {moment}", range.start());
    }

    pub fn sends(&self, key: &'static str, write: ModelWrite) -> SentWrite {
        let (mut ledger, condition) = (self.context.ledger(), write.condition.clone());
        let write = ledger.write(key, write);
        SentWrite { write, condition_read: ledger.read(key), condition }
    }

    pub fn learn(&self, bytes: Bytes) -> BodyId {
        self.context.ledger().bodies.learn_whole(bytes)
    }
}
