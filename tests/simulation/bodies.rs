//! Every body that was ever sent: distinct per write, so that a swap is seen, unless the bucket keeps equal
//! content once, and known by its `ETag`, since that is all that most answers tell.

use std::collections::HashMap;

use bytes::Bytes;
use md5::{Digest as _, Md5};
use s3o_model::etag::{self, ETag};

use crate::model::Body;

/// The MD5 of some bytes.
pub fn md5(bytes: &[u8]) -> etag::Md5 {
    etag::Md5(Md5::digest(bytes).into())
}

/// The SHA-256 of some bytes.
pub fn sha256(bytes: &[u8]) -> etag::Sha256 {
    etag::Sha256(sha2::Sha256::digest(bytes).into())
}

/// The `ETag` of an object made of these parts.
pub fn etag_of_parts(parts: &[Bytes]) -> ETag {
    let digests: Vec<u8> = parts.iter().flat_map(|part| md5(part).0).collect();
    ETag::of_parts(md5(&digests), parts.len())
}

/// All bodies.
#[derive(Default)]
pub struct Bodies {
    known: Vec<(ETag, Bytes)>,
    by_etag: HashMap<String, Body>,
}

impl Bodies {
    /// Makes a body known; bodies that nobody can tell apart are one.
    pub fn learn(&mut self, etag: ETag, bytes: Bytes) -> Body {
        let next = self.known.len();
        let body = *self.by_etag.entry(etag.as_str().to_owned()).or_insert(next);
        if body == next {
            self.known.push((etag, bytes));
        }
        body
    }

    /// Makes the body of a plain write known.
    pub fn learn_whole(&mut self, bytes: Bytes) -> Body {
        self.learn(ETag::of_whole(md5(&bytes)), bytes)
    }

    /// The body of this `ETag`, if there ever was one.
    pub fn find(&self, etag: &ETag) -> Option<Body> {
        self.by_etag.get(etag.as_str()).copied()
    }

    /// Its bytes.
    pub fn bytes(&self, body: Body) -> &Bytes {
        &self.known[body].1
    }

    /// Its `ETag`.
    pub fn etag(&self, body: Body) -> &ETag {
        &self.known[body].0
    }
}
