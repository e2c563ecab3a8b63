//! Reads objects through the cache. The catalog has resolved the content ID, and entries are keyed by it, so a cached
//! body is never stale.

use std::sync::Arc;

use bytes::Bytes;
use s3o_backend::ByteStream;
use s3o_cache::{BodyRequest, Cache};
use s3o_catalog::{CondemnedObserver, Resolved, WholeContent};
use s3o_model::etag::{ETag, Md5};
use s3o_model::ids::ContentId;
use s3o_model::multipart::PART_NUMBER_MAX;
use s3o_model::object::Object;
use s3o_model::range::ByteRange;

use crate::digest::md5_of;
use crate::get_object::source_of;
use crate::read::ContentSource;
use crate::{Engine, Error};

/// Up to this size, hashing is cheaper than moving the bytes to another thread.
const INLINE_BYTES_MAX: usize = 128 * 1024;

/// Removes condemned content from the cache.
pub(crate) struct CacheInvalidator(pub(crate) Arc<Cache>);

impl CondemnedObserver for CacheInvalidator {
    fn condemned(&self, contents: &[ContentId]) {
        self.0.forget(contents);
    }
}

impl Engine {
    /// Streams a range of an object, from the cache if its body is cached or small enough to be.
    pub(crate) async fn read_object(&self, resolved: Resolved, range: ByteRange) -> Result<ByteStream, Error> {
        match self.cached_body(&resolved, range).await? {
            Some(body) => Ok(Box::pin(futures_util::stream::once(std::future::ready(Ok(slice(&body, range)))))),
            None => self.read(source_of(resolved)?, range).await,
        }
    }

    async fn cached_body(&self, resolved: &Resolved, range: ByteRange) -> Result<Option<Bytes>, Error> {
        let (Some(cache), Some(object)) = (&self.cache, &resolved.object) else { return Ok(None) };
        if range.length == 0 || !cache.takes(object.size_bytes) {
            return Ok(None);
        }
        let request =
            BodyRequest { content: object.content, size_bytes: object.size_bytes, expires_at: object.expires_at };
        cache.body(&request, || self.load(object, resolved.whole.as_ref())).await
    }

    /// Reads a whole body and verifies its digest.
    async fn load(&self, object: &Object, whole: Option<&WholeContent>) -> Result<Bytes, Error> {
        match whole {
            Some(whole) => self.load_whole(object, whole).await,
            None => self.load_joined(object).await,
        }
    }

    /// Reads the copies one by one until one matches the MD5; a copy that does not match is marked as suspect.
    async fn load_whole(&self, object: &Object, whole: &WholeContent) -> Result<Bytes, Error> {
        let (content, size_bytes) = (object.content, object.size_bytes);
        let mut failure = Error::Damaged("no copy of the content is known".to_owned());
        for copy in &whole.copies {
            let source = ContentSource::Whole { content, size_bytes, copies: vec![copy.clone()] };
            match self.read_all(source, size_bytes).await {
                Ok(body) if digest(&body).await? == whole.md5 => return Ok(body),
                Ok(_) => {
                    self.suspect(content, &copy.location).await;
                    failure = Error::Damaged("no copy has the digest that was written".to_owned());
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Verifies the parts by the `ETag`, which is computed from their MD5s.
    async fn load_joined(&self, object: &Object) -> Result<Bytes, Error> {
        // Queried before the bytes are read: a copy that replaces a bad one later is not the one that was read.
        let parts = self.catalog.numbered_pieces(object.content, 0, PART_NUMBER_MAX as usize).await?.pieces;
        let body = self.read_all(ContentSource::Joined { content: object.content }, object.size_bytes).await?;
        let mut digests = Vec::with_capacity(parts.len() * 16);
        for part in &parts {
            let range = ByteRange { start: part.start, length: part.length };
            if range.end() > object.size_bytes {
                return Err(Error::Damaged("a part exceeds the size of its object".to_owned()));
            }
            let read = digest(&slice(&body, range)).await?;
            if let [copy] = part.copies.as_slice()
                && part.is_whole()
                && read != part.whole_md5
            {
                self.suspect(part.whole, &copy.location).await;
            }
            digests.extend_from_slice(&read.0);
        }
        if ETag::of_parts(md5_of(&digests), parts.len()) != object.etag {
            return Err(Error::Damaged("the digests of the parts do not match the ETag".to_owned()));
        }
        Ok(body)
    }
}

fn slice(body: &Bytes, range: ByteRange) -> Bytes {
    let place = |position: u64| usize::try_from(position).unwrap_or(usize::MAX).min(body.len());
    body.slice(place(range.start)..place(range.end()))
}

async fn digest(body: &Bytes) -> Result<Md5, Error> {
    if body.len() <= INLINE_BYTES_MAX {
        return Ok(md5_of(body));
    }
    let body = body.clone();
    let hashing = tokio::task::spawn_blocking(move || md5_of(&body));
    hashing.await.map_err(|error| Error::Internal(format!("hashing stopped: {error}")))
}
