//! Reads objects through the cache. The catalog has resolved the content ID, and entries are keyed by it, so a cached
//! body is never stale.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use s3o_backend::ByteStream;
use s3o_cache::{BodyRequest, Cache};
use s3o_catalog::{CondemnedObserver, Resolved, WholeContent};
use s3o_model::content::{Piece, ReadableCopy};
use s3o_model::etag::{ETag, Md5};
use s3o_model::ids::ContentId;
use s3o_model::multipart::PART_NUMBER_MAX;
use s3o_model::object::Object;
use s3o_model::range::ByteRange;

use crate::digest::md5_of;
use crate::get_object::source_of;
use crate::read::{ContentSource, ReadHistory};
use crate::{Engine, Error};

/// Up to this size, hashing is cheaper than moving the bytes to another thread.
const INLINE_BYTES_MAX: usize = 128 * 1024;

/// A whole content, and the MD5 of the bytes that were written.
struct WantedBody {
    content: ContentId,
    size_bytes: u64,
    md5: Md5,
}

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
        let Some(whole) = whole else { return self.load_joined(object).await };
        let wanted = WantedBody { content: object.content, size_bytes: object.size_bytes, md5: whole.md5 };
        self.load_whole(&wanted, &whole.copies, &mut ReadHistory::default()).await
    }

    /// Reads until a body matches the MD5. A copy that returned another body by itself is marked as suspect. The first
    /// copy that contributed to a wrong body is not read again.
    async fn load_whole(
        &self,
        wanted: &WantedBody,
        copies: &[ReadableCopy],
        history: &mut ReadHistory,
    ) -> Result<Bytes, Error> {
        let &WantedBody { content, size_bytes, .. } = wanted;
        let mut left = copies.to_vec();
        while !left.is_empty() {
            let source = ContentSource::Whole { content, size_bytes, copies: left.clone() };
            let body = self.read_all(source, ByteRange::whole(size_bytes), history).await?;
            if digest(&body).await? == wanted.md5 {
                return Ok(body);
            }
            let opened = history.opened();
            if let [wrong] = opened {
                self.suspect(content, wrong).await;
            }
            let known = left.len();
            left.retain(|copy| Some(&copy.location) != opened.first());
            if left.len() == known {
                break;
            }
        }
        Err(Error::Damaged("no copy has the digest that was written".to_owned()))
    }

    /// Verifies the parts one by one, and together by the `ETag`, which is computed from their MD5s.
    async fn load_joined(&self, object: &Object) -> Result<Bytes, Error> {
        let parts = self.catalog.numbered_pieces(object.content, 0, PART_NUMBER_MAX as usize).await?.pieces;
        let mut history = ReadHistory::default();
        let mut body = BytesMut::new();
        let mut digests = Vec::with_capacity(parts.len() * 16);
        for part in &parts {
            if part.start + part.length > object.size_bytes {
                return Err(Error::Damaged("a part exceeds the size of its object".to_owned()));
            }
            let read = self.load_part(part, &mut history).await?;
            digests.extend_from_slice(&digest(&read).await?.0);
            body.extend_from_slice(&read);
        }
        if body.len() as u64 != object.size_bytes || ETag::of_parts(md5_of(&digests), parts.len()) != object.etag {
            return Err(Error::Damaged("the digests of the parts do not match the ETag".to_owned()));
        }
        Ok(body.freeze())
    }

    /// Only the `ETag` of the object verifies a part that is a range of its content.
    async fn load_part(&self, part: &Piece, history: &mut ReadHistory) -> Result<Bytes, Error> {
        if part.is_whole() {
            let wanted = WantedBody { content: part.whole, size_bytes: part.whole_bytes, md5: part.whole_md5 };
            return self.load_whole(&wanted, &part.copies, history).await;
        }
        let range = ByteRange { start: part.offset, length: part.length };
        let (content, size_bytes) = (part.whole, part.whole_bytes);
        let source = ContentSource::Whole { content, size_bytes, copies: part.copies.clone() };
        self.read_all(source, range, history).await
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
