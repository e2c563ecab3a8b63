//! What all clients together know: the model of every key, every body, every open request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use s3o_model::clock::Timestamp;
use s3o_model::etag::ETag;

use crate::bodies::Bodies;
use crate::model::{Body, Impossible, Key, Request, Value, Write};
use crate::sky::Sky;

/// Keys whose bodies are small; anything may be done to them.
pub const SMALL: [&str; 5] = ["a", "b/c", "b/d", "odd ~ key/é", "z"];
/// Keys that may hold bodies of many megabytes; they are copied among themselves only.
pub const HUGE: [&str; 2] = ["huge", "huge 2"];
/// Five mebibytes that nobody changes: what the smallest part before the last is copied from.
pub const BIG: &str = "big";

/// A copy that may still read its source.
struct OpenCopy {
    write: Request,
    source: &'static str,
    target: &'static str,
}

/// All that is known.
#[derive(Default)]
pub struct Ledger {
    pub bodies: Bodies,
    /// Writes that nobody waits for any more, and that may still be under way.
    pub abandoned: Vec<Request>,
    keys: BTreeMap<&'static str, Key>,
    open: BTreeMap<Request, &'static str>,
    copies: Vec<OpenCopy>,
    /// Rules that may be in force. They outlive every process.
    removals: Vec<(Request, &'static str)>,
    requests: Request,
    /// Grows with every request that may change something.
    changes: u64,
    sky: Arc<Sky>,
}

impl Ledger {
    /// Nothing is known yet.
    pub fn new(sky: Arc<Sky>) -> Self {
        Self { sky, ..Self::default() }
    }

    fn key(&mut self, key: &'static str) -> &mut Key {
        self.keys.entry(key).or_insert_with(|| Key::new(self.sky.clone()))
    }

    fn register(&mut self, key: &'static str) -> Request {
        self.requests += 1;
        self.open.insert(self.requests, key);
        self.requests
    }

    /// A reader of a key sets out.
    pub fn read(&mut self, key: &'static str) -> Request {
        let request = self.register(key);
        self.key(key).start_read(request);
        request
    }

    /// A writer of a key sets out.
    pub fn write(&mut self, key: &'static str, write: Write) -> Request {
        self.changes += 1;
        let request = self.register(key);
        self.tell_copies(key, &write.values, &mut BTreeSet::new());
        self.key(key).start_write(request, write);
        request
    }

    /// A copy sets out: it may write whatever its source holds until it is answered.
    pub fn copy(&mut self, source: &'static str, target: &'static str, write: Write) -> Request {
        let mut values = self.key(source).possible();
        values.remove(&None);
        let write = self.write(target, Write { values, ..write });
        self.copies.push(OpenCopy { write, source, target });
        write
    }

    /// The writer was told when what it wrote ceases to exist.
    pub fn told(&mut self, request: Request, moment: Timestamp) {
        let key = self.open[&request];
        let outcome = self.key(key).told(request, moment);
        expect(key, request, outcome);
    }

    /// What may appear at a source may appear at the targets of open copies, and behind those.
    fn tell_copies(&mut self, source: &'static str, values: &BTreeSet<Value>, told: &mut BTreeSet<&'static str>) {
        if !told.insert(source) {
            return;
        }
        let mut values = values.clone();
        values.remove(&None);
        let copies: Vec<(Request, &'static str)> =
            self.copies.iter().filter(|copy| copy.source == source).map(|copy| (copy.write, copy.target)).collect();
        for (write, target) in copies {
            self.key(target).may_also_write(write, &values);
            self.tell_copies(target, &values, told);
        }
    }

    /// From now on these keys may lose what they hold. How many rules may have been in force before is returned.
    pub fn start_removals(&mut self, keys: impl Iterator<Item = &'static str>) -> usize {
        let earlier = self.removals.len();
        for key in keys {
            self.changes += 1;
            self.requests += 1;
            let request = self.requests;
            self.key(key).start_removal(request);
            self.removals.push((request, key));
        }
        earlier
    }

    /// So many rules, the oldest, are not in force any more.
    pub fn end_removals(&mut self, count: usize) {
        let ended: Vec<_> = self.removals.drain(..count).collect();
        for (request, key) in ended {
            self.key(key).lost(request);
        }
    }

    fn close(&mut self, request: Request) -> &'static str {
        self.copies.retain(|copy| copy.write != request);
        self.open.remove(&request).expect("an open request")
    }

    /// The request was answered with something that fits; what that may have been is returned.
    pub fn answered(&mut self, request: Request, fits: impl Fn(&Bodies, Value) -> bool) -> BTreeSet<Value> {
        let key = self.close(request);
        let model = self.keys.get_mut(key).expect("a key in use");
        let bodies = &self.bodies;
        expect(key, request, model.answered(request, |value| fits(bodies, value)))
    }

    /// The request was answered: it has no effect.
    pub fn refused(&mut self, request: Request) {
        let key = self.close(request);
        let outcome = self.key(key).refused(request);
        expect(key, request, outcome);
    }

    /// Nobody will ever know what became of the request.
    pub fn lost(&mut self, request: Request) {
        let key = self.close(request);
        self.key(key).lost(request);
    }

    /// Whatever is still open is lost: the process that worked on it is gone, or has nothing left
    /// to do.
    pub fn lose_all(&mut self) {
        self.abandoned.clear();
        for request in self.open.keys().copied().collect::<Vec<_>>() {
            self.lost(request);
        }
    }

    /// A number that grows while anything may change, and whether a write to the key is under way.
    pub fn unrest(&mut self, key: &'static str) -> (u64, bool) {
        (self.changes, self.key(key).is_changing())
    }

    /// Something that the key may hold now.
    pub fn guess(&mut self, key: &'static str) -> Option<Body> {
        self.key(key).possible().into_iter().flatten().last()
    }

    /// The body behind an `ETag` that was answered.
    pub fn known(&self, etag: &ETag) -> Body {
        self.bodies.find(etag).unwrap_or_else(|| panic!("nobody ever sent a body with the ETag {etag}"))
    }

    /// The bytes of a body.
    pub fn bytes(&self, body: Body) -> Bytes {
        self.bodies.bytes(body).clone()
    }
}

fn expect<T>(key: &str, request: Request, outcome: Result<T, Impossible>) -> T {
    outcome.unwrap_or_else(|Impossible(why)| panic!("the answer to request {request} on {key} is impossible: {why}"))
}
