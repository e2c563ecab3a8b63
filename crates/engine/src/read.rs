//! Streams bytes of content from the backends. If a copy fails or stalls, the read continues with another
//! copy at the same byte.

mod history;
mod segment;
mod suspect;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use s3o_backend::{BodyError, ByteStream, Span};
use s3o_model::content::ReadableCopy;
use s3o_model::ids::ContentId;
use s3o_model::range::ByteRange;

use crate::{BackendTrouble, Engine, Error};
pub(crate) use history::ReadHistory;
use segment::{Segment, unavailable};

/// Number of pieces that one catalog query returns.
const PIECES_PAGE: usize = 100;

/// The content to read.
#[derive(Debug, Clone)]
pub(crate) enum ContentSource {
    /// Complete at each of these copies.
    Whole { content: ContentId, size_bytes: u64, copies: Vec<ReadableCopy> },
    /// An ordered list of ranges of whole contents, which the catalog returns in pages.
    Joined { content: ContentId },
}

/// A segment and the stream of its open copy.
struct OpenSegment {
    segment: Segment,
    stream: ByteStream,
    /// How long to wait for the next chunk; `None` if no other copy can continue the body.
    stall_timeout: Option<Duration>,
}

struct RangeReader {
    engine: Engine,
    /// The part of the range whose pieces are not read from the catalog yet.
    unplanned: Option<(ContentId, ByteRange)>,
    planned: VecDeque<Segment>,
    /// The segment that is being sent.
    current: Option<OpenSegment>,
    history: ReadHistory,
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

    /// Reads a range that fits into memory. The history continues that of the reads before it.
    pub(crate) async fn read_all(
        &self,
        source: ContentSource,
        range: ByteRange,
        history: &mut ReadHistory,
    ) -> Result<Bytes, Error> {
        let mut reader = RangeReader::new(self.clone(), source, range);
        reader.history = std::mem::take(history);
        let read = reader.collect(range.length).await;
        *history = reader.history;
        read
    }
}

impl RangeReader {
    fn new(engine: Engine, source: ContentSource, range: ByteRange) -> Self {
        let (unplanned, planned) = match source {
            ContentSource::Joined { content } => (Some((content, range)), VecDeque::new()),
            ContentSource::Whole { content, size_bytes, copies } => {
                let span = Span { offset: range.start, length: range.length };
                (None, VecDeque::from([Segment::new((content, size_bytes), copies, span)]))
            }
        };
        Self { engine, unplanned, planned, current: None, history: ReadHistory::default() }
    }

    /// Opens the next segment; returns false at the end of the range.
    async fn open_next(&mut self) -> Result<bool, Error> {
        if self.planned.is_empty() {
            self.plan().await?;
        }
        let Some(segment) = self.planned.pop_front() else { return Ok(false) };
        self.history.begin_segment();
        let no_copy = Error::Damaged("no copy of the content is known".to_owned());
        self.open(segment, no_copy).await?;
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

    /// Opens a copy of a segment; fails with `failure` if none can be read.
    async fn open(&mut self, mut segment: Segment, failure: Error) -> Result<(), Error> {
        let stream = self.engine.open_segment(&mut segment, &mut self.history, failure).await?;
        let stall_timeout = self.engine.stall_timeout(&segment, &self.history);
        self.current = Some(OpenSegment { segment, stream, stall_timeout });
        Ok(())
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(OpenSegment { segment, stream, stall_timeout }) = &mut self.current else {
                if self.open_next().await? {
                    continue;
                }
                return Ok(None);
            };
            if segment.span.length == 0 {
                self.current = None;
                continue;
            }
            let Some(next) = next_within(stream, *stall_timeout).await else {
                self.replace_stalled().await?;
                continue;
            };
            match next {
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

    async fn collect(&mut self, size_bytes: u64) -> Result<Bytes, Error> {
        let size = usize::try_from(size_bytes).map_err(|_| Error::Internal("too large for memory".to_owned()))?;
        // A copy: chunks may be small slices of large buffers, and the cache counts the length of a body.
        let mut body = BytesMut::with_capacity(size);
        while let Some(chunk) = self.next_chunk().await? {
            body.extend_from_slice(&chunk);
        }
        if body.len() != size {
            return Err(Error::Damaged(format!("{} of {size_bytes} bytes were read", body.len())));
        }
        Ok(body.freeze())
    }

    /// Continues with the next copy at the first byte that was not read.
    async fn resume(&mut self, failure: Error) -> Result<(), Error> {
        match self.current.take() {
            Some(current) => self.open(current.segment, failure).await,
            None => Ok(()),
        }
    }

    /// Continues with another copy, because the next chunk of the open one is late.
    async fn replace_stalled(&mut self) -> Result<(), Error> {
        if let Some(OpenSegment { segment, .. }) = &mut self.current {
            self.engine.return_stalled(segment, &mut self.history);
        }
        let detail = "the read of the last copy stalled".to_owned();
        self.resume(unavailable(BackendTrouble::Unreachable, detail)).await
    }
}

/// The next item of a stream; `None` if it does not come in time.
async fn next_within(stream: &mut ByteStream, timeout: Option<Duration>) -> Option<Option<Result<Bytes, BodyError>>> {
    match timeout {
        Some(timeout) => tokio::time::timeout(timeout, stream.next()).await.ok(),
        None => Some(stream.next().await),
    }
}
