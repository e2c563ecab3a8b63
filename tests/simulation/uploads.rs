//! Multipart uploads. Each belongs to one client, which sends its requests in order and relies only on what was
//! acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use s3o_engine::multipart::{CompleteUpload, Completed, CreateUpload, UploadPart, UploadPartCopy, UploadRef};
use s3o_engine::{Declared, Error};
use s3o_model::etag::ETag;
use s3o_model::expiry::Expiry;
use s3o_model::ids::UploadId;
use s3o_model::multipart::{ListedPart, PART_BYTES_MIN, PartsRefused};
use s3o_model::object::Attributes;
use s3o_model::range::RangeSpec;
use s3o_tests::harness::{bucket, key as parse_key};

use crate::bodies::{Bodies, etag_of_parts, md5};
use crate::client::{ClientAnswer, ClientAnswerRef, SimulatedClient};
use crate::copies::copy_source;
use crate::ledger::{BIG, HUGE, SMALL};
use crate::model::{KeyContent, ModelWrite};

/// Attempts of one `CompleteMultipartUpload`.
const COMPLETES_MAX: usize = 3;

/// An upload that its client has not seen closed.
#[derive(Clone)]
pub struct OpenUpload {
    key: &'static str,
    id: UploadId,
    expiry: Option<Expiry>,
    parts: BTreeMap<u32, (ETag, Bytes)>,
    /// Parts that an unacknowledged request may have replaced.
    unsure: BTreeSet<u32>,
    /// A Complete or Abort was not answered, so that the upload may be closed.
    may_be_closed: bool,
}

impl OpenUpload {
    fn target(&self) -> UploadRef {
        UploadRef { bucket: bucket(), key: parse_key(self.key), upload: self.id }
    }

    fn assert_may_be_closed(&self, error: &Error) {
        assert!(self.may_be_closed, "the upload of {} is open, but: {error}", self.key);
    }
}

impl SimulatedClient {
    /// The next step of one of this client's uploads.
    pub async fn multipart(&self) {
        let upload = {
            let mut state = self.state();
            let count = state.uploads.len();
            if count == 0 || (count < 3 && state.rng.u8(..4) == 0) {
                None
            } else {
                let position = state.rng.usize(..count);
                Some(state.uploads.swap_remove(position))
            }
        };
        let Some(mut upload) = upload else { return self.create_upload().await };
        let step = self.draw(|rng| rng.u8(..10));
        let remains_open = if upload.may_be_closed || step == 0 {
            self.abort_upload(&mut upload).await
        } else if upload.parts.is_empty() || step < 5 {
            self.upload_part(&mut upload).await
        } else if step < 7 {
            self.copy_part(&mut upload).await
        } else {
            self.complete_upload(&mut upload).await
        };
        if remains_open {
            self.state().uploads.push(upload);
        }
    }

    async fn create_upload(&self) {
        let key = if self.context.has_big && self.one_of(2) { self.pick(&HUGE) } else { self.pick(&SMALL) };
        let expiry = self.expiry();
        let create = CreateUpload {
            bucket: bucket(),
            key: parse_key(key),
            attributes: Attributes::default(),
            checksum: None,
            expiry,
        };
        let answer = self.send(self.engine.create_upload(create)).await;
        self.record(format_args!("create an upload of {key}: {:?}", answer.as_ref().map(Result::is_ok)));
        if let Some(Ok(created)) = answer {
            let (id, parts, unsure) = (created.upload.id, BTreeMap::new(), BTreeSet::new());
            self.state().uploads.push(OpenUpload { key, id, expiry, parts, unsure, may_be_closed: false });
        }
    }

    async fn upload_part(&self, upload: &mut OpenUpload) -> bool {
        let (number, bytes, token) = (self.draw(|rng| rng.u32(1..4)), self.bytes("part"), Arc::new(()));
        let part = UploadPart {
            target: upload.target(),
            number,
            size_bytes: bytes.len() as u64,
            body: self.stream(&bytes, &token),
            declared: Declared::default(),
        };
        let answer = self.send(self.engine.upload_part(part)).await;
        drop(token);
        let answer = answer.map(|answer| answer.map(|stored| (stored.etag, bytes)));
        self.settle_part(upload, number, answer)
    }

    fn settle_part(&self, upload: &mut OpenUpload, number: u32, answer: ClientAnswer<(ETag, Bytes)>) -> bool {
        self.record(format_args!(
            "part {number} of {}: {:?}",
            upload.key,
            answer.as_ref().map(|answer| answer.as_ref().map(|(etag, bytes)| (etag, bytes.len())))
        ));
        match answer {
            Some(Ok((etag, bytes))) => {
                assert_eq!(etag, ETag::of_whole(md5(&bytes)), "the part differs from the bytes that were sent");
                upload.parts.insert(number, (etag, bytes));
                upload.unsure.remove(&number);
            }
            Some(Err(error @ Error::NoSuchUpload)) => {
                upload.assert_may_be_closed(&error);
                return false;
            }
            // A part whose client disconnected may even replace a part that is sent after it.
            None => upload.may_be_closed = true,
            Some(Err(_)) => drop(upload.unsure.insert(number)),
        }
        true
    }

    /// Copies a part from another object: the whole 5 MiB object if the seed has one, otherwise a range.
    async fn copy_part(&self, upload: &mut OpenUpload) -> bool {
        let number = self.draw(|rng| rng.u32(1..4));
        let is_big = self.context.has_big && HUGE.contains(&upload.key) && self.one_of(2);
        let (source, range) = if is_big {
            (BIG, None)
        } else {
            let (first, length) = self.draw(|rng| (rng.u64(..30), rng.u64(..1000)));
            (self.any_key(), Some((first, first + length)))
        };
        let spec = range.map(|(first, last)| RangeSpec::From { first, last: Some(last) });
        let copy = UploadPartCopy { target: upload.target(), number, source: copy_source(source), range: spec };
        let read = self.context.ledger().read(source);
        let answer = self.send(self.engine.upload_part_copy(copy)).await;
        let answer = answer.map(|answer| answer.map(|copied| copied.etag));
        self.record(format_args!("copy {range:?} of {source} to part {number} of {}: {answer:?}", upload.key));
        let bytes = self.settle_source(read, range, answer.as_ref());
        match (answer, bytes) {
            (Some(Ok(etag)), Some(bytes)) => self.settle_part(upload, number, Some(Ok((etag, bytes)))),
            (Some(Err(Error::NoSuchKey | Error::RangeNotSatisfiable { .. })), _) => true,
            (answer, _) => {
                self.settle_part(upload, number, answer.map(|answer| answer.map(|etag| (etag, Bytes::new()))))
            }
        }
    }

    /// Compares the answer to a part copy with the ledger; returns the copied bytes.
    fn settle_source(&self, read: u64, range: Option<(u64, u64)>, answer: ClientAnswerRef<'_, ETag>) -> Option<Bytes> {
        let mut ledger = self.context.ledger();
        match answer {
            Some(Ok(etag)) => {
                let fits = |bodies: &Bodies, value: KeyContent| {
                    let Some(body) = value else { return false };
                    match slice(bodies.bytes(body), range) {
                        Some(_) if range.is_none() => bodies.etag(body) == etag,
                        Some(bytes) => ETag::of_whole(md5(&bytes)) == *etag,
                        None => false,
                    }
                };
                let seen = ledger.answered(read, fits);
                let body = seen.into_iter().flatten().next().expect("a copied part has a source");
                slice(&ledger.bytes(body), range)
            }
            Some(Err(Error::NoSuchKey)) => {
                ledger.answered(read, |_, value| value.is_none());
                None
            }
            Some(Err(Error::RangeNotSatisfiable { size_bytes })) => {
                ledger
                    .answered(read, |bodies, value| value.is_some_and(|b| bodies.bytes(b).len() as u64 == *size_bytes));
                None
            }
            Some(Err(_)) | None => {
                ledger.lost(read);
                None
            }
        }
    }

    async fn complete_upload(&self, upload: &mut OpenUpload) -> bool {
        let chosen = self.choose_parts(upload);
        let listed: Vec<ListedPart> = chosen.iter().map(|number| listed(upload, *number)).collect();
        let parts: Vec<Bytes> = chosen.iter().map(|number| upload.parts[number].1.clone()).collect();
        let body = self.context.ledger().bodies.learn(etag_of_parts(&parts), parts.concat().into());
        let condition = self.condition(upload.key);
        let complete = CompleteUpload {
            target: upload.target(),
            parts: listed,
            condition: self.write_condition(&condition),
            checksum: None,
            coverage: None,
            size_bytes: None,
        };
        self.record(format_args!("complete {} with parts {chosen:?} as body {body} {condition:?}", upload.key));
        let write = ModelWrite { expiry: upload.expiry, ..ModelWrite::of(Some(body), condition) };
        let sent = self.sends(upload.key, write);
        let answer = self.send(self.complete_until_answered(complete)).await;
        self.record(format_args!("complete {} as body {body}: {answer:?}", upload.key));
        match &answer {
            Some(Err(Error::Parts(PartsRefused::Unknown(number)))) => {
                assert!(upload.unsure.contains(number), "part {number} of {} was acknowledged and is gone", upload.key);
            }
            Some(Err(error @ (Error::NoSuchUpload | Error::Parts(_)))) => upload.assert_may_be_closed(error),
            Some(Err(Error::PreconditionFailed(_) | Error::NoSuchKey | Error::Expiry(_))) => {}
            Some(Ok(_) | Err(_)) | None => upload.may_be_closed = true,
        }
        !self.settle(&sent, answer.as_ref())
    }

    /// Repeats the request: with the same parts, Complete gives the same answer.
    async fn complete_until_answered(&self, complete: CompleteUpload) -> Result<Completed, Error> {
        for _ in 1..COMPLETES_MAX {
            match self.engine.complete_upload(complete.clone()).await {
                Err(Error::Away(_) | Error::Conflict) => self.context.journal.count("completes repeated"),
                answer => return answer,
            }
        }
        self.engine.complete_upload(complete).await
    }

    /// Chooses a last part and all parts before it that are large enough.
    fn choose_parts(&self, upload: &OpenUpload) -> Vec<u32> {
        let last = self.draw(|rng| rng.usize(..upload.parts.len()));
        let last = *upload.parts.keys().nth(last).expect("a part");
        let large = upload.parts.range(..last).filter(|(_, (_, bytes))| bytes.len() as u64 >= PART_BYTES_MIN);
        large.map(|(number, _)| *number).chain([last]).collect()
    }

    async fn abort_upload(&self, upload: &mut OpenUpload) -> bool {
        let target = upload.target();
        let answer = self.send(self.engine.abort_upload(&target)).await;
        self.record(format_args!("abort the upload of {}: {answer:?}", upload.key));
        match answer {
            Some(Ok(())) => false,
            Some(Err(error @ Error::NoSuchUpload)) => {
                upload.assert_may_be_closed(&error);
                false
            }
            Some(Err(_)) | None => {
                upload.may_be_closed = true;
                true
            }
        }
    }
}

fn listed(upload: &OpenUpload, number: u32) -> ListedPart {
    ListedPart { number, etag: upload.parts[&number].0.clone(), checksum: None }
}

/// None if the range exceeds the bytes.
fn slice(bytes: &Bytes, range: Option<(u64, u64)>) -> Option<Bytes> {
    let Some((first, last)) = range else { return Some(bytes.clone()) };
    let (first, last) = (usize::try_from(first).expect("small"), usize::try_from(last).expect("small"));
    (last < bytes.len()).then(|| bytes.slice(first..=last))
}
