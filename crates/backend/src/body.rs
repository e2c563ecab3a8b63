//! Bodies: byte streams whose length is announced and enforced.
//!
//! The last chunk of a body is passed on only after the producer has ended without an error. A
//! store that receives a stream can therefore never complete a body that is too long or whose
//! digest does not match, because it never receives the last byte.

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};

use crate::{BodyError, ByteStream};

/// Largest buffer allocated before bytes arrive; the announced length may be wrong.
const RESERVED_BYTES_MAX: u64 = 1024 * 1024;

/// A body with these bytes.
#[must_use]
pub fn whole(bytes: Bytes) -> ByteStream {
    if bytes.is_empty() { empty() } else { Box::pin(stream::iter([Ok(bytes)])) }
}

/// A body without bytes.
#[must_use]
pub fn empty() -> ByteStream {
    Box::pin(stream::empty())
}

/// Enforces the announced length of a body; any other length ends the stream with an error instead of
/// the last chunk.
#[must_use]
pub fn exactly(body: ByteStream, expected: u64) -> ByteStream {
    let start = Some(LengthCheck { body, expected, received: 0, last: None });
    Box::pin(stream::unfold(start, |state| async move { state?.step().await }))
}

/// Reads a body into memory and enforces its announced length.
pub async fn collect(body: ByteStream, expected: u64) -> Result<Bytes, BodyError> {
    let mut body = exactly(body, expected);
    let Some(first) = body.next().await.transpose()? else { return Ok(Bytes::new()) };
    if first.len() as u64 == expected {
        // `exactly` has already read to the end before it passed on the last chunk.
        return Ok(first);
    }
    let capacity = usize::try_from(expected.min(RESERVED_BYTES_MAX)).unwrap_or(0);
    let mut bytes = BytesMut::with_capacity(capacity.max(first.len()));
    bytes.extend_from_slice(&first);
    while let Some(chunk) = body.next().await {
        bytes.extend_from_slice(&chunk?);
    }
    Ok(bytes.freeze())
}

struct LengthCheck {
    body: ByteStream,
    expected: u64,
    received: u64,
    last: Option<Bytes>,
}

impl LengthCheck {
    async fn step(mut self) -> Option<(Result<Bytes, BodyError>, Option<Self>)> {
        loop {
            match self.body.next().await {
                None if self.received < self.expected => {
                    let short = BodyError::Short { expected: self.expected, received: self.received };
                    return Some((Err(short), None));
                }
                None => return self.last.take().map(|chunk| (Ok(chunk), None)),
                Some(Err(broken)) => return Some((Err(broken), None)),
                Some(Ok(chunk)) if chunk.is_empty() => {}
                Some(Ok(chunk)) => {
                    self.received += chunk.len() as u64;
                    if self.received > self.expected {
                        return Some((Err(BodyError::Long { expected: self.expected }), None));
                    }
                    if self.received < self.expected {
                        return Some((Ok(chunk), Some(self)));
                    }
                    self.last = Some(chunk);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{collect, empty, exactly, whole};
    use crate::{BodyError, ByteStream};
    use bytes::Bytes;
    use futures_util::{StreamExt, stream};

    fn chunks(items: Vec<Result<&'static str, BodyError>>) -> ByteStream {
        Box::pin(stream::iter(items.into_iter().map(|item| item.map(Bytes::from))))
    }

    #[tokio::test]
    async fn body_of_the_announced_length_is_collected() {
        let body = chunks(vec![Ok("ab"), Ok(""), Ok("c")]);
        assert_eq!(collect(body, 3).await.expect("whole"), "abc");
        assert_eq!(collect(whole(Bytes::from("abc")), 3).await.expect("whole"), "abc");
        assert!(collect(empty(), 0).await.expect("whole").is_empty());
    }

    #[tokio::test]
    async fn short_and_long_bodies_give_different_errors() {
        let short = collect(chunks(vec![Ok("ab")]), 3).await;
        assert!(matches!(short, Err(BodyError::Short { expected: 3, received: 2 })));
        let long = collect(chunks(vec![Ok("ab"), Ok("cd")]), 3).await;
        assert!(matches!(long, Err(BodyError::Long { expected: 3 })));
        let unannounced = collect(whole(Bytes::from("x")), 0).await;
        assert!(matches!(unannounced, Err(BodyError::Long { expected: 0 })));
    }

    #[tokio::test]
    async fn error_after_the_last_byte_holds_back_the_last_chunk() {
        let body = chunks(vec![Ok("ab"), Ok("c"), Err(BodyError::Mismatch("MD5"))]);
        let items: Vec<_> = exactly(body, 3).collect().await;
        assert_eq!(items.len(), 2);
        assert_eq!(items[0].as_ref().expect("a chunk"), "ab");
        assert!(matches!(items[1], Err(BodyError::Mismatch("MD5"))));
    }
}
