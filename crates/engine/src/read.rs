//! Reading bytes: piece by piece, in order, failing over between copies and going on at the byte
//! where one broke.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::unfold;
use s3o_backend::{BodyError, ByteStream, Error as BackendError, Span};
use s3o_model::content::{Location, Piece};
use s3o_model::ids::ContentId;
use s3o_model::range::ByteRange;

use crate::{BackendTrouble, Engine, Error};

/// How many pieces are read from the catalog at a time.
const PIECES_PAGE: usize = 100;

/// Where bytes are.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// In one piece of so many bytes, at each of these places.
    Whole { content: ContentId, size_bytes: u64, locations: Vec<Location> },
    /// In the pieces of joined content.
    Joined { content: ContentId },
}

/// Bytes of one physical copy that are still to be sent.
#[derive(Debug, Clone)]
struct Segment {
    /// The whole content that they are of, and its length.
    content: ContentId,
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

struct Reading {
    engine: Engine,
    /// What is left of the range that is not yet planned; joined content is planned in pages.
    unplanned: Option<(ContentId, ByteRange)>,
    planned: VecDeque<Segment>,
    /// The segment that is being sent, and its bytes.
    current: Option<(Segment, ByteStream)>,
}

impl Engine {
    /// Streams a range; the first byte is on its way when this answers.
    pub(crate) async fn read(&self, source: Source, range: ByteRange) -> Result<ByteStream, Error> {
        if range.length == 0 {
            return Ok(Box::pin(futures_util::stream::empty()));
        }
        let mut reading = Reading::new(self.clone(), source, range);
        reading.open_next().await?;
        Ok(Box::pin(unfold(Some(reading), |reading| async move { reading?.next().await })))
    }

    /// Reads all of a source that is small enough to be held at once.
    pub(crate) async fn read_all(&self, source: Source, size_bytes: u64) -> Result<Bytes, Error> {
        let mut reading = Reading::new(self.clone(), source, ByteRange::whole(size_bytes));
        let size = usize::try_from(size_bytes).map_err(|_| Error::Internal("too large to be held".to_owned()))?;
        // Chunks may be small views of large buffers, and what is kept is counted by its length.
        let mut body = BytesMut::with_capacity(size);
        while let Some(chunk) = reading.next_chunk().await? {
            body.extend_from_slice(&chunk);
        }
        if body.len() != size {
            return Err(Error::Damaged(format!("{} of {size_bytes} bytes were read", body.len())));
        }
        Ok(body.freeze())
    }

    /// Opens a segment at the first of its copies that answers; `failure` is what it means if there is none left.
    async fn open_segment(&self, segment: &mut Segment, mut failure: Error) -> Result<ByteStream, Error> {
        while let Some(location) = segment.locations.pop_front() {
            let Some(backend) = self.fleet.get(&location.backend) else {
                failure = unavailable(BackendTrouble::NotConfigured, location.backend.to_string());
                continue;
            };
            match backend.get(&location.physical_key, Some(segment.span)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    log_copy(&location, &error);
                    if matches!(error, BackendError::Away(_)) {
                        self.fleet.suspect(&location.backend);
                    }
                    self.doubt(segment.content, &location, segment.size_bytes, &error).await;
                    failure = self.judge_copy(&location, error);
                }
            }
        }
        Err(failure)
    }
}

impl Engine {
    /// Bytes that a frozen backend does not have may be on the one that belongs there.
    fn judge_copy(&self, location: &Location, error: BackendError) -> Error {
        let frozen = self.fleet.standing(&location.backend).and_then(|standing| standing.frozen.clone());
        match (frozen, error) {
            (Some(reason), BackendError::NotFound) => {
                unavailable(BackendTrouble::Frozen, format!("{}: {reason}", location.backend))
            }
            (_, error) => error.into(),
        }
    }
}

fn unavailable(trouble: BackendTrouble, detail: String) -> Error {
    Error::Unavailable { trouble, detail }
}

fn log_copy(location: &Location, error: &BackendError) {
    tracing::warn!(backend = %location.backend, physical_key = location.physical_key, %error, "copy not readable");
}

impl Reading {
    fn new(engine: Engine, source: Source, range: ByteRange) -> Self {
        let (unplanned, planned) = match source {
            Source::Joined { content } => (Some((content, range)), VecDeque::new()),
            Source::Whole { content, size_bytes, locations } => {
                let span = Span { offset: range.start, length: range.length };
                (None, VecDeque::from([Segment { content, size_bytes, locations: locations.into(), span }]))
            }
        };
        Self { engine, unplanned, planned, current: None }
    }

    /// Opens the next segment; `false` when all were sent.
    async fn open_next(&mut self) -> Result<bool, Error> {
        if self.planned.is_empty() {
            self.plan().await?;
        }
        let Some(mut segment) = self.planned.pop_front() else { return Ok(false) };
        let unknown = Error::Damaged("no copy of the content is known".to_owned());
        let stream = self.engine.open_segment(&mut segment, unknown).await?;
        self.current = Some((segment, stream));
        Ok(true)
    }

    /// Reads the next page of pieces from the catalog.
    async fn plan(&mut self) -> Result<(), Error> {
        let Some((content, range)) = self.unplanned.take() else { return Ok(()) };
        let pieces = self.engine.objects.pieces(content, range.start, range.end(), PIECES_PAGE).await?;
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
                    tracing::warn!(%error, "copy broke off, trying the next one");
                    let detail = format!("the last copy broke off: {error}");
                    self.resume(unavailable(BackendTrouble::Unreachable, detail)).await?;
                }
                None => self.resume(Error::Damaged("the last copy ended early".to_owned())).await?,
            }
        }
    }

    /// Goes on with another copy at the byte where this one broke.
    async fn resume(&mut self, failure: Error) -> Result<(), Error> {
        if let Some((mut segment, _)) = self.current.take() {
            let stream = self.engine.open_segment(&mut segment, failure).await?;
            self.current = Some((segment, stream));
        }
        Ok(())
    }
}
