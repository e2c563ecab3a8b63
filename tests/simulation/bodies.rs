//! Every body that a client sent, by its `ETag`, which is all that most answers contain. Without dedup bodies are
//! unique, so that a swapped body is noticed.

use std::collections::HashMap;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use s3o_model::etag::{self, ETag};

use crate::model::BodyId;

pub fn md5(bytes: &[u8]) -> etag::Md5 {
    etag::Md5(Md5::digest(bytes).into())
}

pub fn sha256(bytes: &[u8]) -> etag::Sha256 {
    etag::Sha256(sha2::Sha256::digest(bytes).into())
}

/// The `ETag` of a multipart object with these parts.
pub fn etag_of_parts(parts: &[Bytes]) -> ETag {
    let digests: Vec<u8> = parts.iter().flat_map(|part| md5(part).0).collect();
    ETag::of_parts(md5(&digests), parts.len())
}

#[derive(Default)]
pub struct Bodies {
    known: Vec<(ETag, Bytes)>,
    by_etag: HashMap<String, BodyId>,
}

impl Bodies {
    /// Adds a body; equal bodies are one.
    pub fn learn(&mut self, etag: ETag, bytes: Bytes) -> BodyId {
        let next = self.known.len();
        let body = *self.by_etag.entry(etag.as_str().to_owned()).or_insert(next);
        if body == next {
            self.known.push((etag, bytes));
        }
        body
    }

    /// Adds the body of a write that is not multipart.
    pub fn learn_whole(&mut self, bytes: Bytes) -> BodyId {
        self.learn(ETag::of_whole(md5(&bytes)), bytes)
    }

    /// None if no client sent a body with this `ETag`.
    pub fn find(&self, etag: &ETag) -> Option<BodyId> {
        self.by_etag.get(etag.as_str()).copied()
    }

    pub fn bytes(&self, body: BodyId) -> &Bytes {
        &self.known[body].1
    }

    pub fn etag(&self, body: BodyId) -> &ETag {
        &self.known[body].0
    }
}
