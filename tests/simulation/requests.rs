//! Requests on objects, each with what its answer means.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use s3o_engine::{
    Copied, CopyObject, CopySource, Declared, DeleteObject, DeleteTarget, Error, GetObject, PutObject, Wanted,
};
use s3o_model::clock::Timestamp;
use s3o_model::conditions::{ReadConditions, WriteCondition};
use s3o_model::etag::ETag;
use s3o_model::intent::DeclaredDigests;
use s3o_model::listing::{Entry, ListQuery};
use s3o_model::object::Attributes;
use s3o_model::range::RangeSpec;

use crate::bodies::{Bodies, md5, sha256};
use crate::client::{Answer, Client, Seen, SentWrite, bucket, object_key};
use crate::ledger::{BIG, HUGE, SMALL};
use crate::model::{Condition, Value, Write};

impl Client {
    pub fn write_condition(&self, condition: &Condition) -> WriteCondition {
        match condition {
            Condition::Always => WriteCondition::None,
            Condition::IfAbsent => WriteCondition::IfAbsent,
            Condition::IfMatch(body) => WriteCondition::IfMatch(Some(self.town.ledger().bodies.etag(*body).clone())),
        }
    }

    fn put_request(
        &self,
        key: &str,
        bytes: &Bytes,
        digests: DeclaredDigests,
        condition: &Condition,
    ) -> (PutObject, Arc<()>) {
        let token = Arc::new(());
        let put = PutObject {
            bucket: bucket(),
            key: object_key(key),
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
        self.tell(format_args!("put {key} body {body} of {} bytes, {condition:?}, {expiry:?}", bytes.len()));
        let (put, token) = self.put_request(key, &bytes, digests, &condition);
        let put = PutObject { expiry, ..put };
        let write = Write { declared: is_declared, expiry, ..Write::of(Some(body), condition) };
        let sent = self.sends(key, write);
        let answer = self.send(self.engine.put_object(put)).await;
        drop(token);
        self.tell(format_args!(
            "put {key} body {body}: {:?}",
            answer.as_ref().map(|a| a.as_ref().map(|s| (&s.etag, &s.departure)))
        ));
        self.settle(&sent, answer.as_ref());
    }

    /// Bytes that are not what was declared must never become an object.
    pub async fn put_with_a_wrong_digest(&self) {
        let (key, bytes) = (self.any_key(), self.bytes("wrong"));
        let wrong = DeclaredDigests {
            md5: Some(md5(b"something else")),
            sha256: self.one_of(2).then(|| sha256(&bytes)),
            checksum: None,
        };
        let (put, token) = self.put_request(key, &bytes, wrong, &Condition::Always);
        self.tell(format_args!("put {key} with a wrong digest"));
        let answer = self.send(self.engine.put_object(put)).await;
        drop(token);
        assert!(!matches!(answer, Some(Ok(_))), "a wrong digest was accepted for {key}");
    }

    fn wanted(&self) -> Wanted {
        self.draw(|rng| match rng.u8(..4) {
            0 => {
                let first = rng.u64(..80);
                Wanted::Range(RangeSpec::From { first, last: Some(first + rng.u64(..2000)) })
            }
            1 => Wanted::Range(RangeSpec::Suffix { length: rng.u64(1..40) }),
            _ => Wanted::Whole,
        })
    }

    pub async fn get(&self) {
        let key = if self.town.has_big && self.one_of(20) { BIG } else { self.any_key() };
        let get = get_request(key, self.wanted());
        let (request, before) = {
            let mut ledger = self.town.ledger();
            (ledger.read(key), ledger.unrest(key))
        };
        let since = self.town.sky.mark();
        self.tell(format_args!("get {key} {:?}", get.wanted));
        let answer = self.send(self.read_through(get)).await;
        let mut ledger = self.town.ledger();
        match answer {
            Some(Ok(Body { etag, expires_at, start, bytes })) => {
                self.check_end(key, since, expires_at);
                ledger.answered(request, |bodies, value| holds(bodies, value, &etag, start, &bytes));
                self.town.journal.count("reads answered");
            }
            Some(Err(Error::NoSuchKey)) => {
                ledger.answered(request, |_, value| value.is_none());
                self.town.journal.count("reads answered");
            }
            Some(Err(Error::RangeNotSatisfiable { size_bytes })) => {
                let fits =
                    |bodies: &Bodies, value: Value| value.is_some_and(|b| bodies.bytes(b).len() as u64 == size_bytes);
                ledger.answered(request, fits);
            }
            Some(Err(Error::Damaged(why))) => {
                let is_calm = before == ledger.unrest(key) && !before.1;
                assert!(!is_calm, "{key} cannot be read, and nobody changed it: {why}");
                ledger.lost(request);
            }
            Some(Err(_)) | None => ledger.lost(request),
        }
    }

    async fn read_through(&self, get: GetObject) -> Result<Body, Error> {
        let mut opened = self.engine.get_object(get).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = opened.body.next().await {
            bytes.extend_from_slice(&chunk.map_err(|error| Error::Away(error.to_string()))?);
        }
        assert_eq!(bytes.len() as u64, opened.found.range.length, "a body ended cleanly and too early");
        let (object, start) = (opened.found.object, opened.found.range.start);
        Ok(Body { etag: object.etag, expires_at: object.expires_at, start, bytes: bytes.into() })
    }

    pub async fn head(&self) {
        let key = self.any_key();
        let (request, since) = (self.town.ledger().read(key), self.town.sky.mark());
        let get = get_request(key, Wanted::Whole);
        let answer = self.send(self.engine.head_object(&get)).await;
        if let Some(Ok(found)) = &answer {
            self.check_end(key, since, found.object.expires_at);
        }
        self.settle_look(request, key, answer.map(|answer| answer.map(|found| Some(found.object.etag))));
    }

    pub async fn list(&self) {
        let keys: Vec<&'static str> = SMALL.iter().chain(&HUGE).copied().collect();
        let requests: Vec<_> = keys.iter().map(|key| self.town.ledger().read(key)).collect();
        let query = ListQuery { prefix: String::new(), delimiter: None, after: None, limit: 1000 };
        let answer = self.send(self.engine.list_objects(&bucket(), query)).await;
        self.tell(format_args!(
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
            self.settle_look(request, key, seen);
        }
    }

    /// Holds what an answer says of a key against the ledger.
    fn settle_look(&self, request: u64, key: &str, answer: Answer<Option<ETag>>) {
        let mut ledger = self.town.ledger();
        let seen = match answer {
            Some(Ok(etag)) => etag,
            Some(Err(Error::NoSuchKey)) => None,
            Some(Err(_)) | None => return ledger.lost(request),
        };
        let value = seen.as_ref().map(|etag| ledger.known(etag));
        ledger.answered(request, |_, held| held == value);
        self.town.journal.tell(format_args!("  {key} was seen with {value:?}"));
        self.town.journal.count("looks answered");
    }

    pub async fn delete(&self) {
        let key = self.any_key();
        let condition = match self.condition(key) {
            Condition::IfMatch(body) => Condition::IfMatch(body),
            Condition::Always | Condition::IfAbsent => Condition::Always,
        };
        let delete =
            DeleteObject { bucket: bucket(), key: object_key(key), condition: self.write_condition(&condition) };
        self.tell(format_args!("delete {key} {condition:?}"));
        let sent = self.sends(key, Write::of(None, condition));
        let answer = self.send(self.engine.delete_object(delete)).await;
        self.tell(format_args!("delete {key}: {answer:?}"));
        self.settle(&sent, answer.as_ref());
    }

    pub async fn delete_many(&self) {
        let keys: Vec<&'static str> = SMALL.into_iter().filter(|_| self.one_of(2)).collect();
        let sent: Vec<SentWrite> = keys.iter().map(|key| self.sends(key, Write::of(None, Condition::Always))).collect();
        let targets = keys.iter().map(|key| DeleteTarget { key: object_key(key), if_match: None }).collect();
        let bucket = bucket();
        let answer = self.send(self.engine.delete_objects(&bucket, targets)).await;
        self.tell(format_args!("delete {keys:?}: {answer:?}"));
        for (position, sent) in sent.iter().enumerate() {
            let away = || Error::Away("not deleted".to_owned());
            let own: Answer<()> = answer.as_ref().map(|answer| match answer {
                Ok(results) => results[position].clone().map_err(|_| away()),
                Err(_) => Err(away()),
            });
            self.settle(sent, own.as_ref());
        }
    }

    pub async fn copy(&self) {
        let family: &[&'static str] = if self.town.has_big && self.one_of(8) { &HUGE } else { &SMALL };
        let (source, target) = (self.pick(family), self.pick(family));
        if source == target {
            return;
        }
        let (condition, expiry) = (self.condition(target), self.expiry());
        let copy = CopyObject {
            source: copy_source(source),
            bucket: bucket(),
            key: object_key(target),
            replace_metadata: None,
            storage_class: None,
            replace_tags: None,
            condition: self.write_condition(&condition),
            checksum: None,
            expiry,
        };
        self.tell(format_args!("copy {source} to {target} {condition:?} {expiry:?}"));
        let (read, sent) = {
            let mut ledger = self.town.ledger();
            let write = Write { expiry, ..Write::of(None, condition.clone()) };
            let write = ledger.copy(source, target, write);
            (ledger.read(source), SentWrite { write, judged: ledger.read(target), condition })
        };
        let answer = self.send(self.engine.copy_object(copy)).await;
        self.tell(format_args!("copy {source} to {target}: {answer:?}"));
        self.settle_copy(read, &sent, answer.as_ref());
    }

    fn settle_copy(&self, read: u64, sent: &SentWrite, answer: Seen<'_, Copied>) {
        // The source and, of a conditional copy, the target may be what was missing.
        if matches!((answer, &sent.condition), (Some(Err(Error::NoSuchKey)), Condition::Always | Condition::IfAbsent)) {
            let mut ledger = self.town.ledger();
            ledger.answered(read, |_, value| value.is_none());
            ledger.refused(sent.write);
            return ledger.lost(sent.judged);
        }
        if let (Some(Err(Error::NoSuchKey)), Condition::IfMatch(_)) = (answer, &sent.condition) {
            let mut ledger = self.town.ledger();
            ledger.refused(sent.write);
            ledger.lost(read);
            return ledger.lost(sent.judged);
        }
        {
            let mut ledger = self.town.ledger();
            match answer {
                Some(Ok(copied)) => {
                    let body = ledger.known(&copied.etag);
                    ledger.answered(read, |_, value| value == Some(body));
                }
                Some(Err(_)) | None => ledger.lost(read),
            }
        }
        self.settle(sent, answer);
    }
}

/// What a reader was given.
struct Body {
    etag: ETag,
    expires_at: Option<Timestamp>,
    /// Where in the object it begins.
    start: u64,
    bytes: Bytes,
}

/// A request to read an object.
pub fn get_request(key: &str, wanted: Wanted) -> GetObject {
    GetObject { bucket: bucket(), key: object_key(key), wanted, conditions: ReadConditions::default() }
}

pub fn copy_source(key: &str) -> CopySource {
    CopySource { bucket: bucket(), key: object_key(key), conditions: ReadConditions::default() }
}

/// Whether a value is what a read delivered.
fn holds(bodies: &Bodies, value: Value, etag: &ETag, start: u64, bytes: &Bytes) -> bool {
    let Some(body) = value else { return false };
    let start = usize::try_from(start).expect("small");
    let slice = bodies.bytes(body).get(start..start + bytes.len());
    bodies.etag(body) == etag && slice == Some(bytes.as_ref())
}
