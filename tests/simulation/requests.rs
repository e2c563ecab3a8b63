//! Requests on objects, and the comparison of their answers with the ledger.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use s3o_engine::{Declared, DeleteObject, DeleteTarget, Error, GetObject, PutObject, RequestedRange};
use s3o_model::clock::Timestamp;
use s3o_model::conditions::WriteCondition;
use s3o_model::etag::ETag;
use s3o_model::intent::DeclaredDigests;
use s3o_model::listing::{Entry, ListQuery};
use s3o_model::object::Attributes;
use s3o_model::range::RangeSpec;
use s3o_tests::harness::{bucket, get, key as parse_key};

use crate::answers::SentWrite;
use crate::bodies::{Bodies, md5, sha256};
use crate::client::{ClientAnswer, SimulatedClient};
use crate::ledger::{BIG, HUGE, SMALL};
use crate::model::{KeyContent, ModelCondition, ModelWrite};

impl SimulatedClient {
    pub fn write_condition(&self, condition: &ModelCondition) -> WriteCondition {
        match condition {
            ModelCondition::Always => WriteCondition::None,
            ModelCondition::IfAbsent => WriteCondition::IfAbsent,
            ModelCondition::IfMatch(body) => {
                WriteCondition::IfMatch(Some(self.context.ledger().bodies.etag(*body).clone()))
            }
        }
    }

    fn put_request(
        &self,
        key: &str,
        bytes: &Bytes,
        digests: DeclaredDigests,
        condition: &ModelCondition,
    ) -> (PutObject, Arc<()>) {
        let token = Arc::new(());
        let put = PutObject {
            bucket: bucket(),
            key: parse_key(key),
            size_bytes: bytes.len() as u64,
            body: self.stream(bytes, &token),
            declared: Declared { digests, ..Declared::default() },
            attributes: Attributes::default(),
            condition: self.write_condition(condition),
            expiry: None,
        };
        (put, token)
    }

    pub async fn put(&self) {
        let (key, bytes) = (self.any_key(), self.bytes("put"));
        let digests = DeclaredDigests {
            md5: (!self.one_of(4)).then(|| md5(&bytes)),
            sha256: self.one_of(2).then(|| sha256(&bytes)),
            checksum: None,
        };
        let is_declared = !digests.is_empty();
        let condition = self.condition(key);
        let (body, expiry) = (self.learn(bytes.clone()), self.expiry());
        self.record(format_args!("put {key} body {body} of {} bytes, {condition:?}, {expiry:?}", bytes.len()));
        let (put, token) = self.put_request(key, &bytes, digests, &condition);
        let put = PutObject { expiry, ..put };
        let write = ModelWrite { declared: is_declared, expiry, ..ModelWrite::of(Some(body), condition) };
        let sent = self.sends(key, write);
        let answer = self.send(self.engine.put_object(put)).await;
        drop(token);
        self.record(format_args!(
            "put {key} body {body}: {:?}",
            answer.as_ref().map(|a| a.as_ref().map(|s| (&s.etag, &s.expiration)))
        ));
        self.settle(&sent, answer.as_ref());
    }

    /// Bytes that differ from the declared digest must never be stored as an object.
    pub async fn put_with_wrong_digest(&self) {
        let (key, bytes) = (self.any_key(), self.bytes("wrong"));
        let wrong = DeclaredDigests {
            md5: Some(md5(b"something else")),
            sha256: self.one_of(2).then(|| sha256(&bytes)),
            checksum: None,
        };
        let (put, token) = self.put_request(key, &bytes, wrong, &ModelCondition::Always);
        self.record(format_args!("put {key} with a wrong digest"));
        let answer = self.send(self.engine.put_object(put)).await;
        drop(token);
        assert!(!matches!(answer, Some(Ok(_))), "a wrong digest was accepted for {key}");
    }

    fn wanted(&self) -> RequestedRange {
        self.draw(|rng| match rng.u8(..4) {
            0 => {
                let first = rng.u64(..80);
                RequestedRange::Range(RangeSpec::From { first, last: Some(first + rng.u64(..2000)) })
            }
            1 => RequestedRange::Range(RangeSpec::Suffix { length: rng.u64(1..40) }),
            _ => RequestedRange::Whole,
        })
    }

    pub async fn get(&self) {
        let key = if self.context.has_big && self.one_of(20) { BIG } else { self.any_key() };
        let get = get_request(key, self.wanted());
        let (request, before) = {
            let mut ledger = self.context.ledger();
            (ledger.read(key), ledger.changes(key))
        };
        let since = self.context.clock.mark();
        self.record(format_args!("get {key} {:?}", get.wanted));
        let answer = self.send(self.read_through(get)).await;
        let mut ledger = self.context.ledger();
        match answer {
            Some(Ok(ReadBody { etag, expires_at, start, bytes })) => {
                self.check_expiry(key, since, expires_at);
                ledger.answered(request, |bodies, value| holds(bodies, value, &etag, start, &bytes));
                self.context.journal.count("reads answered");
            }
            Some(Err(Error::NoSuchKey)) => {
                ledger.answered(request, |_, value| value.is_none());
                self.context.journal.count("reads answered");
            }
            Some(Err(Error::RangeNotSatisfiable { size_bytes })) => {
                let fits = |bodies: &Bodies, value: KeyContent| {
                    value.is_some_and(|b| bodies.bytes(b).len() as u64 == size_bytes)
                };
                ledger.answered(request, fits);
            }
            Some(Err(Error::Damaged(why))) if !self.context.writes_off => {
                let is_unchanged = before == ledger.changes(key) && !before.1;
                assert!(!is_unchanged, "{key} cannot be read, and no request changed it: {why}");
                ledger.lost(request);
            }
            Some(Err(_)) | None => ledger.lost(request),
        }
    }

    async fn read_through(&self, get: GetObject) -> Result<ReadBody, Error> {
        let mut opened = self.engine.get_object(get).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = opened.body.next().await {
            bytes.extend_from_slice(&chunk.map_err(|error| Error::Away(error.to_string()))?);
        }
        assert_eq!(bytes.len() as u64, opened.found.range.length, "a body ended cleanly and too early");
        let (object, start) = (opened.found.object, opened.found.range.start);
        Ok(ReadBody { etag: object.etag, expires_at: object.expires_at, start, bytes: bytes.into() })
    }

    pub async fn head(&self) {
        let key = self.any_key();
        let (request, since) = (self.context.ledger().read(key), self.context.clock.mark());
        let get = get_request(key, RequestedRange::Whole);
        let answer = self.send(self.engine.head_object(&get)).await;
        if let Some(Ok(found)) = &answer {
            self.check_expiry(key, since, found.object.expires_at);
        }
        self.settle_read(request, key, answer.map(|answer| answer.map(|found| Some(found.object.etag))));
    }

    pub async fn list(&self) {
        let keys: Vec<&'static str> = SMALL.iter().chain(&HUGE).copied().collect();
        let requests: Vec<_> = keys.iter().map(|key| self.context.ledger().read(key)).collect();
        let query = ListQuery { prefix: String::new(), delimiter: None, after: None, limit: 1000 };
        let answer = self.send(self.engine.list_objects(&bucket(), query)).await;
        self.record(format_args!(
            "list: {:?}",
            answer.as_ref().map(|answer| answer.as_ref().map(|page| page.entries.len()))
        ));
        for (key, request) in keys.into_iter().zip(requests) {
            let seen = match &answer {
                Some(Ok(page)) => Some(Ok(page.entries.iter().find_map(|entry| match entry {
                    Entry::Row(row) if row.key.as_str() == key => Some(row.etag.clone()),
                    Entry::Row(_) | Entry::Prefix(_) => None,
                }))),
                Some(Err(_)) | None => None,
            };
            self.settle_read(request, key, seen);
        }
    }

    /// Compares the `ETag` in an answer with the ledger.
    fn settle_read(&self, request: u64, key: &str, answer: ClientAnswer<Option<ETag>>) {
        let mut ledger = self.context.ledger();
        let seen = match answer {
            Some(Ok(etag)) => etag,
            Some(Err(Error::NoSuchKey)) => None,
            Some(Err(_)) | None => return ledger.lost(request),
        };
        let value = seen.as_ref().map(|etag| ledger.known(etag));
        ledger.answered(request, |_, held| held == value);
        self.context.journal.record(format_args!("  {key} has {value:?}"));
        self.context.journal.count("metadata reads answered");
    }

    pub async fn delete(&self) {
        let key = self.any_key();
        let condition = match self.condition(key) {
            ModelCondition::IfMatch(body) => ModelCondition::IfMatch(body),
            ModelCondition::Always | ModelCondition::IfAbsent => ModelCondition::Always,
        };
        let delete =
            DeleteObject { bucket: bucket(), key: parse_key(key), condition: self.write_condition(&condition) };
        self.record(format_args!("delete {key} {condition:?}"));
        let sent = self.sends(key, ModelWrite::of(None, condition));
        let answer = self.send(self.engine.delete_object(delete)).await;
        self.record(format_args!("delete {key}: {answer:?}"));
        self.settle(&sent, answer.as_ref());
    }

    pub async fn delete_many(&self) {
        let keys: Vec<&'static str> = SMALL.into_iter().filter(|_| self.one_of(2)).collect();
        let sent: Vec<SentWrite> =
            keys.iter().map(|key| self.sends(key, ModelWrite::of(None, ModelCondition::Always))).collect();
        let targets = keys.iter().map(|key| DeleteTarget { key: parse_key(key), if_match: None }).collect();
        let bucket = bucket();
        let answer = self.send(self.engine.delete_objects(&bucket, targets)).await;
        self.record(format_args!("delete {keys:?}: {answer:?}"));
        for (position, sent) in sent.iter().enumerate() {
            let away = || Error::Away("not deleted".to_owned());
            let own: ClientAnswer<()> = answer.as_ref().map(|answer| match answer {
                Ok(results) => results[position].clone().map_err(|_| away()),
                Err(_) => Err(away()),
            });
            self.settle(sent, own.as_ref());
        }
    }
}

/// What a GET returned.
struct ReadBody {
    etag: ETag,
    expires_at: Option<Timestamp>,
    /// Offset in the object.
    start: u64,
    bytes: Bytes,
}

fn get_request(key: &str, wanted: RequestedRange) -> GetObject {
    GetObject { wanted, ..get(key) }
}

/// Whether a GET of this content may have returned these bytes.
fn holds(bodies: &Bodies, value: KeyContent, etag: &ETag, start: u64, bytes: &Bytes) -> bool {
    let Some(body) = value else { return false };
    let start = usize::try_from(start).expect("small");
    let slice = bodies.bytes(body).get(start..start + bytes.len());
    bodies.etag(body) == etag && slice == Some(bytes.as_ref())
}
