//! Streams bytes of content from the backends. If a copy fails, the read continues with another copy at the same byte.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::{self, unfold};
use s3o_backend::fleet::CallKind;
use s3o_backend::{BodyError, ByteStream, Error as BackendError, SharedBackend, Span};
use s3o_model::circuit::CircuitState;
use s3o_model::content::{Location, Piece};
use s3o_model::ids::ContentId;
use s3o_model::names::BackendName;
use s3o_model::range::ByteRange;
use s3o_model::usage::UsagePurpose;

use crate::{BackendTrouble, Engine, Error};

/// Number of pieces that one catalog query returns.
const PIECES_PAGE: usize = 100;

/// The content to read.
#[derive(Debug, Clone)]
pub(crate) enum ContentSource {
    /// Complete at each of these locations.
    Whole { content: ContentId, size_bytes: u64, locations: Vec<Location> },
    /// An ordered list of ranges of whole contents, which the catalog returns in pages.
    Joined { content: ContentId },
}

/// A span of one whole content that is not sent yet.
#[derive(Debug, Clone)]
struct Segment {
    content: ContentId,
    /// Size of the whole content.
    size_bytes: u64,
    locations: VecDeque<Location>,
    span: Span,
}

impl Segment {
    fn of_piece(piece: &Piece, range: ByteRange) -> Option<Self> {
        let overlap = range.overlap(piece.start, piece.length)?;
        let span = Span { offset: piece.offset + (overlap.start - piece.start), length: overlap.length };
        let (content, size_bytes) = (piece.whole, piece.whole_bytes);
        Some(Self { content, size_bytes, locations: piece.locations.clone().into(), span })
    }

    fn advance(&mut self, bytes: u64) {
        self.span.offset += bytes;
        self.span.length -= bytes.min(self.span.length);
    }
}

struct RangeReader {
    engine: Engine,
    /// The part of the range whose pieces are not read from the catalog yet.
    unplanned: Option<(ContentId, ByteRange)>,
    planned: VecDeque<Segment>,
    /// The segment that is being sent, and its stream.
    current: Option<(Segment, ByteStream)>,
    /// True once a copy was open: a response that has begun is finished, whatever the usage limits.
    has_begun: bool,
}

impl Engine {
    /// Streams a range. A copy is open when this returns, so that most errors occur before the response starts.
    pub(crate) async fn read(&self, source: ContentSource, range: ByteRange) -> Result<ByteStream, Error> {
        if range.length == 0 {
            return Ok(Box::pin(futures_util::stream::empty()));
        }
        let mut reader = RangeReader::new(self.clone(), source, range);
        reader.open_next().await?;
        Ok(Box::pin(unfold(Some(reader), |reader| async move { reader?.next().await })))
    }

    /// Reads a content that fits into memory.
    pub(crate) async fn read_all(&self, source: ContentSource, size_bytes: u64) -> Result<Bytes, Error> {
        let mut reader = RangeReader::new(self.clone(), source, ByteRange::whole(size_bytes));
        let size = usize::try_from(size_bytes).map_err(|_| Error::Internal("too large for memory".to_owned()))?;
        // A copy: chunks may be small slices of large buffers, and the cache counts the length of a body.
        let mut body = BytesMut::with_capacity(size);
        while let Some(chunk) = reader.next_chunk().await? {
            body.extend_from_slice(&chunk);
        }
        if body.len() != size {
            return Err(Error::Damaged(format!("{} of {size_bytes} bytes were read", body.len())));
        }
        Ok(body.freeze())
    }

    /// Opens the first copy of a segment that is readable; fails with `failure` if no copy is left. Copies behind an
    /// open circuit are tried last, and before them those on backends whose usage limit is reached, and slow ones. A
    /// copy whose first byte is late is tried again without a limit if the others fail. Only a read that `has_begun`
    /// opens copies beyond a usage limit.
    async fn open_segment(
        &self,
        segment: &mut Segment,
        mut failure: Error,
        has_begun: bool,
    ) -> Result<ByteStream, Error> {
        let order = |location: &Location| {
            let name = &location.backend;
            (self.is_open(name), self.is_limited(name), self.fleet.is_slow(name))
        };
        segment.locations.make_contiguous().sort_by_cached_key(order);
        let (mut late, mut skipped) = (VecDeque::new(), VecDeque::new());
        while let Some(location) = segment.locations.pop_front().or_else(|| late.pop_front()) {
            let Some(backend) = self.fleet.get(&location.backend) else {
                failure = unavailable(BackendTrouble::NotConfigured, location.backend.to_string());
                continue;
            };
            if !has_begun && let Some(limit) = self.fleet.reached_limit(&location.backend, UsagePurpose::Read) {
                failure = Error::LimitReached(limit);
                skipped.push_back(location);
                continue;
            }
            let limit = self.first_byte_limit(&segment.locations);
            match self.open_copy(backend, &location.physical_key, segment.span, limit).await {
                Some(Ok(stream)) => {
                    segment.locations.append(&mut late);
                    segment.locations.append(&mut skipped);
                    return Ok(stream);
                }
                Some(Err(error)) => failure = self.unreadable(segment, &location, error).await,
                None => late.push_back(location),
            }
        }
        Err(failure)
    }

    pub(crate) fn is_open(&self, backend: &BackendName) -> bool {
        self.fleet.circuit(backend, CallKind::Read) == CircuitState::Open
    }

    fn is_limited(&self, backend: &BackendName) -> bool {
        self.fleet.reached_limit(backend, UsagePurpose::Read).is_some()
    }

    /// How long to wait for the first byte of a copy; `None` if no other copy can be read now.
    fn first_byte_limit(&self, others: &VecDeque<Location>) -> Option<Duration> {
        let is_usable = |other: &Location| {
            let name = &other.backend;
            self.fleet.get(name).is_some() && !self.is_open(name) && !self.is_limited(name)
        };
        others.iter().any(is_usable).then(|| self.settings().first_byte_timeout)
    }

    /// Opens a copy. With a limit, it waits for the first byte and returns `None` if that takes longer.
    async fn open_copy(
        &self,
        backend: &SharedBackend,
        key: &str,
        span: Span,
        limit: Option<Duration>,
    ) -> Option<Result<ByteStream, BackendError>> {
        let Some(limit) = limit else { return Some(backend.get(key, Some(span)).await) };
        let opened = tokio::time::timeout(limit, first_byte(backend, key, span)).await.ok();
        self.fleet.record_first_byte(backend.name(), opened.is_some());
        if opened.is_none() {
            tracing::warn!(backend = %backend.name(), physical_key = key, "first byte of copy is late, trying next");
        }
        opened
    }

    /// Reports a copy that cannot be read, and returns the error of the request if there is no other.
    async fn unreadable(&self, segment: &Segment, location: &Location, error: BackendError) -> Error {
        log_unreadable(location, &error);
        if matches!(error, BackendError::Away(_)) {
            self.fleet.suspect(&location.backend);
        }
        self.recheck_copy(segment.content, location, segment.size_bytes, &error).await;
        self.copy_error(location, error)
    }

    /// A frozen backend may be the wrong disk or bucket, so bytes that it lacks are not lost.
    fn copy_error(&self, location: &Location, error: BackendError) -> Error {
        match (self.fleet.frozen_reason(&location.backend), error) {
            (Some(reason), BackendError::NotFound) => {
                unavailable(BackendTrouble::Frozen, format!("{}: {reason}", location.backend))
            }
            // "No space" is no answer to a read.
            (_, BackendError::NoSpace(detail)) => unavailable(BackendTrouble::Unreachable, detail),
            (_, error) => error.into(),
        }
    }
}

/// Opens a copy and waits for its first byte.
async fn first_byte(backend: &SharedBackend, key: &str, span: Span) -> Result<ByteStream, BackendError> {
    let mut body = backend.get(key, Some(span)).await?;
    match body.next().await {
        Some(Err(error)) => Err(BackendError::Away(error.to_string())),
        // An exhausted stream must not be polled again.
        first => Ok(Box::pin(stream::iter(first).chain(body.fuse()))),
    }
}

fn unavailable(trouble: BackendTrouble, detail: String) -> Error {
    Error::Unavailable { trouble, detail }
}

fn log_unreadable(location: &Location, error: &BackendError) {
    let Location { backend, physical_key } = location;
    tracing::warn!(%backend, physical_key, %error, "copy unreadable, trying next");
}

impl RangeReader {
    fn new(engine: Engine, source: ContentSource, range: ByteRange) -> Self {
        let (unplanned, planned) = match source {
            ContentSource::Joined { content } => (Some((content, range)), VecDeque::new()),
            ContentSource::Whole { content, size_bytes, locations } => {
                let span = Span { offset: range.start, length: range.length };
                (None, VecDeque::from([Segment { content, size_bytes, locations: locations.into(), span }]))
            }
        };
        Self { engine, unplanned, planned, current: None, has_begun: false }
    }

    /// Opens the next segment; returns false at the end of the range.
    async fn open_next(&mut self) -> Result<bool, Error> {
        if self.planned.is_empty() {
            self.plan().await?;
        }
        let Some(mut segment) = self.planned.pop_front() else { return Ok(false) };
        let no_copy = Error::Damaged("no copy of the content is known".to_owned());
        let stream = self.engine.open_segment(&mut segment, no_copy, self.has_begun).await?;
        self.has_begun = true;
        self.current = Some((segment, stream));
        Ok(true)
    }

    /// Reads the next page of pieces from the catalog.
    async fn plan(&mut self) -> Result<(), Error> {
        let Some((content, range)) = self.unplanned.take() else { return Ok(()) };
        let pieces = self.engine.catalog.pieces(content, range.start, range.end(), PIECES_PAGE).await?;
        let planned_to = pieces.last().map_or(range.start, |piece| piece.start + piece.length);
        self.planned.extend(pieces.iter().filter_map(|piece| Segment::of_piece(piece, range)));
        if self.planned.is_empty() {
            return Err(Error::Damaged("joined content lacks a piece".to_owned()));
        }
        if planned_to < range.end() {
            let rest = ByteRange { start: planned_to, length: range.end() - planned_to };
            self.unplanned = Some((content, rest));
        }
        Ok(())
    }

    async fn next(mut self) -> Option<(Result<Bytes, BodyError>, Option<Self>)> {
        match self.next_chunk().await {
            Ok(Some(chunk)) => Some((Ok(chunk), Some(self))),
            Ok(None) => None,
            Err(error) => Some((Err(BodyError::Broken(error.to_string())), None)),
        }
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some((segment, stream)) = &mut self.current else {
                if self.open_next().await? {
                    continue;
                }
                return Ok(None);
            };
            if segment.span.length == 0 {
                self.current = None;
                continue;
            }
            match stream.next().await {
                Some(Ok(chunk)) => {
                    segment.advance(chunk.len() as u64);
                    return Ok(Some(chunk));
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "read of copy interrupted, trying next");
                    let detail = format!("the read of the last copy was interrupted: {error}");
                    self.resume(unavailable(BackendTrouble::Unreachable, detail)).await?;
                }
                None => self.resume(Error::Damaged("the last copy ended early".to_owned())).await?,
            }
        }
    }

    /// Continues with the next copy at the first byte that was not read.
    async fn resume(&mut self, failure: Error) -> Result<(), Error> {
        if let Some((mut segment, _)) = self.current.take() {
            let stream = self.engine.open_segment(&mut segment, failure, true).await?;
            self.current = Some((segment, stream));
        }
        Ok(())
    }
}
