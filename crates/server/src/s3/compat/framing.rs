//! Bounds the memory that `aws-chunked` bodies use.
//!
//! The protocol library buffers each chunk whole, and some SDKs send an object as one unsigned chunk. Unsigned chunks
//! are split as they arrive. Signed chunks must not change, so large ones are refused. Small pieces of a signed chunk
//! are joined: each piece is a separate allocation until its chunk is complete, and a client could send single bytes.

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::Body;

use super::trailers::{MalformedTrailers, Trailers};
use crate::BoxError;

/// The largest signed chunk, and so the most that the server buffers per connection; SDKs send 64 KiB to 1 MiB.
const SIGNED_CHUNK_BYTES_MAX: u64 = 1024 * 1024;
/// Pieces of a signed chunk are joined up to this size; larger ones pass unchanged.
const JOINED_BYTES: usize = 64 * 1024;
/// The longest chunk header line.
const LINE_BYTES_MAX: usize = 1024;

/// Splits and joins the chunks of an `aws-chunked` body; other bodies pass unchanged.
pub fn bounded(headers: &HeaderMap, body: Body) -> Body {
    let Some(kind) = ChunkKind::of(headers) else { return body };
    let mut framing = Framing::new(kind);
    let frames = body.map(Some).chain(stream::iter([None])).flat_map(move |item| {
        let fed = match item {
            Some(item) => item.and_then(|bytes| framing.feed(bytes)),
            None => framing.end(),
        };
        let pieces: Vec<Result<Frame<Bytes>, BoxError>> = match fed {
            Ok(pieces) => pieces.into_iter().map(|piece| Ok(Frame::data(piece))).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::iter(pieces)
    });
    Body::http_body_unsync(StreamBody::new(frames))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkKind {
    Signed,
    Unsigned,
}

impl ChunkKind {
    fn of(headers: &HeaderMap) -> Option<Self> {
        match headers.get("x-amz-content-sha256")?.as_bytes() {
            b"STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Some(Self::Unsigned),
            value if value.starts_with(b"STREAMING-") => Some(Self::Signed),
            _ => None,
        }
    }
}

enum ChunkPosition {
    Line(Vec<u8>),
    Chunk(u64),
    ChunkEnd(&'static [u8]),
    /// After the last chunk.
    Trailers(Trailers),
}

struct Framing {
    kind: ChunkKind,
    state: ChunkPosition,
    joined: BytesMut,
}

impl Framing {
    fn new(kind: ChunkKind) -> Self {
        Self { kind, state: ChunkPosition::Line(Vec::new()), joined: BytesMut::new() }
    }

    fn feed(&mut self, mut input: Bytes) -> Result<Vec<Bytes>, BoxError> {
        let mut output = Vec::new();
        while input.has_remaining() {
            match &mut self.state {
                ChunkPosition::Line(line) => {
                    if let Some(line) = take_line(line, &mut input) {
                        self.begin_chunk(line, &mut output)?;
                    }
                }
                ChunkPosition::Chunk(remaining) => {
                    let length = usize::try_from(*remaining).unwrap_or(usize::MAX).min(input.len());
                    *remaining -= length as u64;
                    let ended = *remaining == 0;
                    self.pass_piece(input.split_to(length), ended, &mut output);
                    if ended {
                        self.state = ChunkPosition::ChunkEnd(b"\r\n");
                    }
                }
                ChunkPosition::ChunkEnd(expected) => {
                    let byte = input.split_to(1);
                    if byte[0] != expected[0] {
                        return Err(malformed());
                    }
                    *expected = &expected[1..];
                    if expected.is_empty() {
                        self.state = ChunkPosition::Line(Vec::new());
                    }
                    if self.kind == ChunkKind::Signed {
                        output.push(byte);
                    }
                }
                ChunkPosition::Trailers(trailers) => {
                    let rest = input.split_to(input.len());
                    trailers.feed(&rest).map_err(|MalformedTrailers| malformed())?;
                    output.push(rest);
                }
            }
        }
        Ok(output)
    }

    /// Refuses a body that ends before its last chunk; the library accepts it.
    fn end(&self) -> Result<Vec<Bytes>, BoxError> {
        match self.state {
            ChunkPosition::Trailers(ref trailers) => {
                trailers.end().map(|()| Vec::new()).map_err(|MalformedTrailers| malformed())
            }
            ChunkPosition::Line(_) | ChunkPosition::Chunk(_) | ChunkPosition::ChunkEnd(_) => {
                Err("aws-chunked: body ends early".into())
            }
        }
    }

    fn begin_chunk(&mut self, line: Vec<u8>, output: &mut Vec<Bytes>) -> Result<(), BoxError> {
        // The library accepts more forms of a size; a line that only the library understands would bypass the bound.
        self.state = match chunk_size(&line).ok_or_else(malformed)? {
            0 => ChunkPosition::Trailers(Trailers::default()),
            size if size > SIGNED_CHUNK_BYTES_MAX && self.kind == ChunkKind::Signed => return Err(malformed()),
            size => ChunkPosition::Chunk(size),
        };
        let is_rewritten = self.kind == ChunkKind::Unsigned && matches!(self.state, ChunkPosition::Chunk(_));
        if !is_rewritten {
            output.push(Bytes::from(line));
        }
        Ok(())
    }

    fn pass_piece(&mut self, piece: Bytes, ends_chunk: bool, output: &mut Vec<Bytes>) {
        match self.kind {
            ChunkKind::Signed if self.joined.is_empty() && (ends_chunk || piece.len() >= JOINED_BYTES) => {
                output.push(piece);
            }
            ChunkKind::Signed => {
                self.joined.extend_from_slice(&piece);
                if ends_chunk || self.joined.len() >= JOINED_BYTES {
                    output.push(self.joined.split().freeze());
                }
            }
            ChunkKind::Unsigned => {
                output.push(Bytes::from(format!("{:x}\r\n", piece.len())));
                output.push(piece);
                output.push(Bytes::from_static(b"\r\n"));
            }
        }
    }
}

/// Moves input to the line; returns the line if it is complete or too long.
fn take_line(line: &mut Vec<u8>, input: &mut Bytes) -> Option<Vec<u8>> {
    let end = input.iter().position(|byte| *byte == b'\n').map_or(input.len(), |at| at + 1);
    line.extend_from_slice(&input.split_to(end));
    (line.ends_with(b"\n") || line.len() > LINE_BYTES_MAX).then(|| std::mem::take(line))
}

fn malformed() -> BoxError {
    // The word that the library uses, so that both get the same error code.
    "aws-chunked: FormatError".into()
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line.strip_suffix(b"\r\n")?).ok()?;
    let digits = line.split(';').next()?;
    // `from_str_radix` accepts a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::{ChunkKind, Framing};
    use bytes::Bytes;

    fn run(kind: ChunkKind, pieces: &[&'static str]) -> Option<String> {
        let mut framing = Framing::new(kind);
        let mut output = Vec::new();
        for piece in pieces {
            output.extend(framing.feed(Bytes::from_static(piece.as_bytes())).ok()?);
        }
        Some(output.iter().map(|piece| std::str::from_utf8(piece).unwrap()).collect())
    }

    #[test]
    fn unsigned_chunks_are_split_as_they_arrive() {
        let cut =
            run(ChunkKind::Unsigned, &["a\r", "\n01234", "56789\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n", "\r\n"]);
        assert_eq!(cut.unwrap(), "5\r\n01234\r\n5\r\n56789\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
    }

    #[test]
    fn signed_chunks_pass_unchanged() {
        let body = "5;chunk-signature=ab\r\n01234\r\n0;chunk-signature=cd\r\n\r\n";
        assert_eq!(run(ChunkKind::Signed, &[body]).unwrap(), body);
        assert_eq!(run(ChunkKind::Signed, &[&body[..9], &body[9..24], &body[24..]]).unwrap(), body);
        assert!(run(ChunkKind::Unsigned, &["1000001\r\n"]).is_some());
    }

    #[test]
    fn signed_chunks_of_more_than_a_mebibyte_are_refused() {
        assert!(run(ChunkKind::Signed, &["100000;chunk-signature=ab\r\n"]).is_some());
        assert_eq!(run(ChunkKind::Signed, &["100001;chunk-signature=ab\r\n"]), None);
    }

    #[test]
    fn small_pieces_of_signed_chunks_are_joined() {
        let mut framing = Framing::new(ChunkKind::Signed);
        framing.feed(Bytes::from_static(b"20000;chunk-signature=ab\r\n")).unwrap();
        let one = |framing: &mut Framing| framing.feed(Bytes::from_static(b"x")).unwrap();
        let sizes: Vec<usize> = (0..0x20000).flat_map(|_| one(&mut framing)).map(|piece| piece.len()).collect();
        assert_eq!(sizes, [65536, 65536]);
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for body in
            ["zz\r\nabc", "2\r\nabXX", "ffffffff \r\nabc", "+2\r\nab", "-0\r\n", "2\nab\r\n", "2\r\r\nab", "\r\n"]
        {
            assert_eq!(run(ChunkKind::Unsigned, &[body]), None, "{body:?}");
            assert_eq!(run(ChunkKind::Signed, &[body]), None, "{body:?}");
        }
    }

    #[test]
    fn body_without_last_chunk_is_refused() {
        let ends = |body: &'static str| {
            let mut framing = Framing::new(ChunkKind::Unsigned);
            framing.feed(Bytes::from_static(body.as_bytes())).unwrap();
            framing.end().is_ok()
        };
        assert!(ends("2\r\nab\r\n0\r\n\r\n"));
        for body in ["", "2\r\na", "2\r\nab", "2\r\nab\r\n", "2\r\nab\r\n0"] {
            assert!(!ends(body), "{body:?}");
        }
    }
}
