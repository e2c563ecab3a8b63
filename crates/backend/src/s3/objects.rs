//! Requests for whole objects: put, get, probe, and s3o's own objects.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, RANGE};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use s3o_model::target::KeyVersion;

use super::S3;
use super::transport::{Payload, RequestError, S3Request, etag, header_text, is_bare_404, read_whole};
use crate::{BodyError, ByteStream, Error, Present, Probe, Span, Written, body};

/// Start of the error text for a missing bucket.
const NO_SUCH_BUCKET: &str = "404 NoSuchBucket";
/// Largest size of an object of s3o's own.
const OWN_BYTES_MAX: u64 = 1024 * 1024;

impl S3 {
    pub(super) async fn put_object(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<Written, Error> {
        if size_bytes > self.put_bytes_max {
            return Err(Error::Refused(format!(
                "body of {size_bytes} bytes is too large for one put, at most {} are allowed",
                self.put_bytes_max
            )));
        }
        let payload = streamed(size_bytes, body).await?;
        let answer = self.transport.answer(S3Request::new(Method::PUT, Some(key), &[]).with_payload(payload)).await?;
        if etag(&answer.headers).is_none() {
            return Err(Error::Unknown(
                "the response to the write has no ETag, it may not come from the store".to_owned(),
            ));
        }
        Ok(self.written(size_bytes, &answer.headers))
    }

    /// Size, ETag and version of a successful write.
    pub(super) fn written(&self, size_bytes: u64, headers: &HeaderMap) -> Written {
        let version_id = version_id(headers);
        if version_id.is_some() {
            self.set_keeps_versions();
        }
        Written { size_bytes, etag: etag(headers), version_id }
    }

    pub(super) async fn get_object(&self, at: KeyVersion<'_>, span: Option<Span>) -> Result<ByteStream, Error> {
        // HTTP has no empty range.
        if let Some(Span { offset, length: 0 }) = span {
            return self.get_empty(at, offset).await;
        }
        let query = version_query(at);
        let mut request = S3Request::new(Method::GET, Some(at.key), query.as_slice());
        if let Some(Span { offset, length }) = span {
            let last = offset.checked_add(length - 1).ok_or_else(beyond_end)?;
            request = request.header(RANGE, &format!("bytes={offset}-{last}"));
        }
        let response = self.transport.send(request).await?;
        if !response.status().is_success() {
            return match read_whole(response).await {
                Err(error) => Err(read_error(error)),
                Ok(_) => Err(Error::Unknown("an error response was read as a success".to_owned())),
            };
        }
        let expected = expected_bytes(response.status(), response.headers(), span)?;
        let chunks = response.into_body().into_data_stream().map_err(|error| BodyError::Broken(error.to_string()));
        Ok(match expected {
            Some(expected) => body::exactly(Box::pin(chunks), expected),
            None => Box::pin(chunks),
        })
    }

    async fn get_empty(&self, at: KeyVersion<'_>, offset: u64) -> Result<ByteStream, Error> {
        match self.probe_object(at).await {
            Probe::Present(present) if offset <= present.size_bytes => Ok(body::empty()),
            Probe::Present(_) => Err(beyond_end()),
            Probe::Absent => Err(Error::NotFound),
            Probe::Unknown(why) => Err(Error::Unknown(why)),
        }
    }

    pub(super) async fn probe_object(&self, at: KeyVersion<'_>) -> Probe {
        let query = version_query(at);
        match self.transport.answer(S3Request::new(Method::HEAD, Some(at.key), query.as_slice())).await {
            Ok(answer) => match (length(&answer.headers), etag(&answer.headers)) {
                (Some(size_bytes), Some(etag)) => {
                    let version_id = version_id(&answer.headers);
                    Probe::Present(Present { size_bytes, etag: Some(etag), version_id, file: None })
                }
                _ => Probe::Unknown("the response has no Content-Length or no ETag".to_owned()),
            },
            Err(error) if is_bare_404(&error) => self.prove_absence(at).await,
            Err(error) => match read_error(error) {
                Error::NotFound => Probe::Absent,
                error => Probe::Unknown(error.to_string()),
            },
        }
    }

    /// A 404 to HEAD has no error code, and a missing bucket gives the same response. The error code of a
    /// GET of the key distinguishes the two.
    async fn prove_absence(&self, at: KeyVersion<'_>) -> Probe {
        let query = version_query(at);
        let request = S3Request::new(Method::GET, Some(at.key), query.as_slice()).header(RANGE, "bytes=0-0");
        match self.transport.answer(request).await.map_err(read_error) {
            Err(Error::NotFound) => Probe::Absent,
            Ok(_) => Probe::Unknown("HEAD returned 404, but GET found the object".to_owned()),
            Err(error) => Probe::Unknown(error.to_string()),
        }
    }

    /// A missing bucket is an error, unless this is the first read and the bucket may be created. A bucket that existed
    /// before was deleted; creating an empty one would not replace it.
    pub(super) async fn read_own_object(&self, key: &str) -> Result<Option<Bytes>, Error> {
        let mut stream = match self.get_object(key.into(), None).await {
            Ok(stream) => stream,
            Err(Error::NotFound) => {
                self.creates_bucket.store(false, Ordering::Relaxed);
                return Ok(None);
            }
            Err(Error::Away(why)) if why.starts_with(NO_SUCH_BUCKET) => {
                return self.provide_bucket().await.map(|()| None);
            }
            Err(error) => return Err(error),
        };
        self.creates_bucket.store(false, Ordering::Relaxed);
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await {
            bytes.extend_from_slice(&chunk.map_err(|error| Error::Away(error.to_string()))?);
            if bytes.len() as u64 > OWN_BYTES_MAX {
                return Err(Error::Refused("object of s3o's own is larger than 1 MiB".to_owned()));
            }
        }
        Ok(Some(Bytes::from(bytes)))
    }

    /// Creates the missing bucket if `create_bucket` is set.
    async fn provide_bucket(&self) -> Result<(), Error> {
        if !self.creates_bucket.swap(false, Ordering::Relaxed) {
            let missing =
                format!("the bucket {:?} does not exist; create it, or set create_bucket: true", self.transport);
            return Err(Error::Away(missing));
        }
        if let Err(error) = self.create_bucket().await {
            self.creates_bucket.store(true, Ordering::Relaxed);
            return Err(error);
        }
        tracing::info!(backend = %self.name, bucket = ?self.transport, "bucket created");
        Ok(())
    }

    pub(super) async fn write_own_object(&self, key: &str, body: Bytes) -> Result<(), Error> {
        let request = S3Request::new(Method::PUT, Some(key), &[]).with_payload(Payload::Known(body));
        self.transport.answer(request).await?;
        Ok(())
    }
}

/// The payload of a body. An empty body is read to its end first: it has no last chunk that could be
/// held back if its producer fails.
pub(super) async fn streamed(size_bytes: u64, body: ByteStream) -> Result<Payload, Error> {
    if size_bytes == 0 {
        return Ok(Payload::Known(body::collect(body, 0).await?));
    }
    Ok(Payload::Stream { size_bytes, body })
}

/// The version of a write, if the store keeps versions.
fn version_query(at: KeyVersion<'_>) -> Option<(&str, &str)> {
    at.version_id.map(|version| ("versionId", version))
}

/// The error of a read. A version that does not exist is as absent as a key.
fn read_error(error: RequestError) -> Error {
    match error {
        RequestError::Response(failure) if failure.code == "NoSuchVersion" => Error::NotFound,
        other => other.into(),
    }
}

pub(super) fn version_id(headers: &HeaderMap) -> Option<String> {
    header_text(headers, "x-amz-version-id").filter(|id| !id.is_empty() && *id != "null").map(str::to_owned)
}

fn length(headers: &HeaderMap) -> Option<u64> {
    header_text(headers, CONTENT_LENGTH.as_str())?.parse().ok()
}

fn beyond_end() -> Error {
    Error::Refused("the span reaches beyond the end of the object".to_owned())
}

/// Number of bytes that the body must have, after a check that the response is about the requested span.
fn expected_bytes(status: StatusCode, headers: &HeaderMap, span: Option<Span>) -> Result<Option<u64>, Error> {
    let announced = length(headers);
    let Some(Span { offset, length }) = span else {
        return match status {
            StatusCode::OK => Ok(announced),
            other => Err(Error::Unknown(format!("a request for a whole object returned {other}"))),
        };
    };
    let fits = announced.is_none_or(|announced| announced == length);
    // Some stores send 200 instead of 206; the Content-Range counts. Some answer a range that covers
    // the whole object with 200 and no Content-Range.
    match header_text(headers, CONTENT_RANGE.as_str()).map(parse_range) {
        Some(Some((first, last))) if first == offset && last - first + 1 == length && fits => Ok(Some(length)),
        Some(Some((first, last))) if first == offset && last - first + 1 < length => Err(beyond_end()),
        None if status == StatusCode::OK && offset == 0 && announced == Some(length) => Ok(Some(length)),
        Some(_) => Err(Error::Unknown("the response is about another range".to_owned())),
        None => Err(Error::Unknown(format!("a request for a range returned {status} without Content-Range"))),
    }
}

/// First and last position of `bytes 0-9/100`.
fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (range, _total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

impl RequestError {
    /// True if the service does not implement the operation.
    pub(super) fn not_implemented(&self) -> bool {
        matches!(self, Self::Response(failure) if failure.not_implemented())
    }
}

#[cfg(test)]
mod tests {
    use super::expected_bytes;
    use crate::{Error, Span};
    use http::StatusCode;
    use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue};

    fn headers(length: &'static str, range: Option<&'static str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static(length));
        if let Some(range) = range {
            headers.insert(CONTENT_RANGE, HeaderValue::from_static(range));
        }
        headers
    }

    #[test]
    fn only_the_requested_range_is_accepted() {
        let span = Some(Span { offset: 2, length: 3 });
        let partial = StatusCode::PARTIAL_CONTENT;
        assert_eq!(expected_bytes(partial, &headers("3", Some("bytes 2-4/9")), span).expect("fits"), Some(3));
        let cut = expected_bytes(partial, &headers("2", Some("bytes 2-3/4")), span);
        assert!(matches!(cut, Err(Error::Refused(_))));
        for (length, range) in [("3", "bytes 1-3/9"), ("4", "bytes 2-4/9"), ("3", "junk"), ("3", "bytes 4-2/9")] {
            assert!(
                matches!(expected_bytes(partial, &headers(length, Some(range)), span), Err(Error::Unknown(_))),
                "{range}"
            );
        }
        assert!(expected_bytes(StatusCode::OK, &headers("9", None), span).is_err());
    }

    #[test]
    fn full_response_is_accepted_for_a_range_of_the_whole_object() {
        let span = Some(Span { offset: 0, length: 9 });
        assert_eq!(expected_bytes(StatusCode::OK, &headers("9", None), span).expect("fits"), Some(9));
    }
}
