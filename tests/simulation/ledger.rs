//! The knowledge of all clients: the model of every key, every body, every open request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use s3o_model::clock::Timestamp;
use s3o_model::etag::ETag;

use crate::bodies::Bodies;
use crate::clock::SimulatedClock;
use crate::model::{BodyId, Contradiction, KeyContent, KeyModel, ModelRequest, ModelWrite};

/// Keys with small bodies; clients send every kind of request to them.
pub const SMALL: [&str; 5] = ["a", "b/c", "b/d", "odd ~ key/é", "z"];
/// Keys that may have bodies of many megabytes; they are only copied to each other.
pub const HUGE: [&str; 2] = ["huge", "huge 2"];
/// An object of 5 MiB that no client changes: the source of the smallest part that S3 allows before the last.
pub const BIG: &str = "big";

/// A copy that may still read its source.
struct OpenCopy {
    write: ModelRequest,
    source: &'static str,
    target: &'static str,
}

#[derive(Default)]
pub struct ClientLedger {
    pub bodies: Bodies,
    /// Writes whose client disconnected, and that may still take effect.
    pub abandoned: Vec<ModelRequest>,
    keys: BTreeMap<&'static str, KeyModel>,
    open: BTreeMap<ModelRequest, &'static str>,
    copies: Vec<OpenCopy>,
    /// Rules that may be in force; they survive crashes.
    removals: Vec<(ModelRequest, &'static str)>,
    /// Operations on prefixes that may not have ended; they survive crashes.
    prefix_operations: Vec<(ModelRequest, &'static str)>,
    requests: ModelRequest,
    /// Number of requests so far that may change something.
    changes: u64,
    clock: Arc<SimulatedClock>,
}

impl ClientLedger {
    pub fn new(clock: Arc<SimulatedClock>) -> Self {
        Self { clock, ..Self::default() }
    }

    fn key(&mut self, key: &'static str) -> &mut KeyModel {
        self.keys.entry(key).or_insert_with(|| KeyModel::new(self.clock.clone()))
    }

    fn register(&mut self, key: &'static str) -> ModelRequest {
        self.requests += 1;
        self.open.insert(self.requests, key);
        self.requests
    }

    /// A read of a key starts.
    pub fn read(&mut self, key: &'static str) -> ModelRequest {
        let request = self.register(key);
        self.key(key).start_read(request);
        request
    }

    /// A write of a key starts.
    pub fn write(&mut self, key: &'static str, write: ModelWrite) -> ModelRequest {
        self.changes += 1;
        let request = self.register(key);
        self.extend_copies(key, &write.values, &mut BTreeSet::new());
        self.key(key).start_write(request, write);
        request
    }

    /// A copy starts: it may write any body that its source has until it is answered.
    pub fn copy(&mut self, source: &'static str, target: &'static str, write: ModelWrite) -> ModelRequest {
        let mut values = self.key(source).possible();
        values.remove(&None);
        let write = self.write(target, ModelWrite { values, ..write });
        self.copies.push(OpenCopy { write, source, target });
        write
    }

    /// The answer to a write says when its object expires.
    pub fn confirm_expiry(&mut self, request: ModelRequest, moment: Timestamp) {
        let key = self.open[&request];
        let outcome = self.key(key).confirm_expiry(request, moment);
        expect(key, request, outcome);
    }

    /// A body that may appear at a source may appear at the targets of open copies, and at the targets of their copies.
    fn extend_copies(
        &mut self,
        source: &'static str,
        values: &BTreeSet<KeyContent>,
        visited: &mut BTreeSet<&'static str>,
    ) {
        if !visited.insert(source) {
            return;
        }
        let mut values = values.clone();
        values.remove(&None);
        let copies: Vec<(ModelRequest, &'static str)> =
            self.copies.iter().filter(|copy| copy.source == source).map(|copy| (copy.write, copy.target)).collect();
        for (write, target) in copies {
            self.key(target).may_also_write(write, &values);
            self.extend_copies(target, &values, visited);
        }
    }

    /// A rule may delete these keys from now on. Returns how many rules may have been in force before.
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

    /// The oldest `count` rules are not in force any more.
    pub fn end_removals(&mut self, count: usize) {
        let ended: Vec<_> = self.removals.drain(..count).collect();
        for (request, key) in ended {
            self.key(key).lost(request);
        }
    }

    /// From now on an operation may move these keys to trash, or restore them.
    pub fn start_prefix_operation(&mut self, keys: impl Iterator<Item = &'static str>, restores: bool) {
        for key in keys {
            self.changes += 1;
            self.requests += 1;
            let request = self.requests;
            if restores {
                self.key(key).start_restore(request);
                let values = self.key(key).restorable();
                self.extend_copies(key, &values, &mut BTreeSet::new());
            } else {
                self.key(key).start_rm(request);
            }
            self.prefix_operations.push((request, key));
        }
    }

    /// No operation on a prefix is running any more.
    pub fn end_prefix_operations(&mut self) {
        for (request, key) in std::mem::take(&mut self.prefix_operations) {
            self.key(key).lost(request);
        }
    }

    fn close(&mut self, request: ModelRequest) -> &'static str {
        self.copies.retain(|copy| copy.write != request);
        self.open.remove(&request).expect("an open request")
    }

    /// The request was answered with a value that fits; returns the values that this may have been.
    pub fn answered(
        &mut self,
        request: ModelRequest,
        fits: impl Fn(&Bodies, KeyContent) -> bool,
    ) -> BTreeSet<KeyContent> {
        let key = self.close(request);
        let model = self.keys.get_mut(key).expect("a key in use");
        let bodies = &self.bodies;
        expect(key, request, model.answered(request, |value| fits(bodies, value)))
    }

    /// The answer says that the request has no effect.
    pub fn refused(&mut self, request: ModelRequest) {
        let key = self.close(request);
        let outcome = self.key(key).refused(request);
        expect(key, request, outcome);
    }

    /// The outcome of the request is unknown.
    pub fn lost(&mut self, request: ModelRequest) {
        let key = self.close(request);
        self.key(key).lost(request);
    }

    /// The outcome of every open request is unknown: its process crashed or has no task left.
    pub fn lose_all(&mut self) {
        self.abandoned.clear();
        for request in self.open.keys().copied().collect::<Vec<_>>() {
            self.lost(request);
        }
    }

    /// The number of changes so far, and whether a write to the key is open.
    pub fn changes(&mut self, key: &'static str) -> (u64, bool) {
        (self.changes, self.key(key).is_changing())
    }

    /// A body that the key may have now.
    pub fn guess(&mut self, key: &'static str) -> Option<BodyId> {
        self.key(key).possible().into_iter().flatten().last()
    }

    /// The body with this `ETag`; panics if no client sent one.
    pub fn known(&self, etag: &ETag) -> BodyId {
        self.bodies.find(etag).unwrap_or_else(|| panic!("no client sent a body with the ETag {etag}"))
    }

    pub fn bytes(&self, body: BodyId) -> Bytes {
        self.bodies.bytes(body).clone()
    }
}

fn expect<T>(key: &str, request: ModelRequest, outcome: Result<T, Contradiction>) -> T {
    outcome
        .unwrap_or_else(|Contradiction(why)| panic!("the answer to request {request} on {key} is not possible: {why}"))
}
