//! Streams bytes of content from the backends. If a copy fails, the read continues with another copy at the same byte.

mod segment;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use s3o_backend::{BodyError, ByteStream, Span};
use s3o_model::content::ReadableCopy;
use s3o_model::ids::ContentId;
use s3o_model::range::ByteRange;

use crate::{BackendTrouble, Engine, Error};
use segment::{ReadHistory, Segment, unavailable};

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

struct RangeReader {
    engine: Engine,
    /// The part of the range whose pieces are not read from the catalog yet.
    unplanned: Option<(ContentId, ByteRange)>,
    planned: VecDeque<Segment>,
    /// The segment that is being sent, and its stream.
    current: Option<(Segment, ByteStream)>,
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
        let Some(mut segment) = self.planned.pop_front() else { return Ok(false) };
        let no_copy = Error::Damaged("no copy of the content is known".to_owned());
        let stream = self.engine.open_segment(&mut segment, &mut self.history, no_copy).await?;
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
            let stream = self.engine.open_segment(&mut segment, &mut self.history, failure).await?;
            self.current = Some((segment, stream));
        }
        Ok(())
    }
}
