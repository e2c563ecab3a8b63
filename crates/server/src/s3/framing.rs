//! Keeps `aws-chunked` bodies from filling memory.
//!
//! The protocol library reads each chunk whole before it passes it on, and some SDKs send an object
//! as one unsigned chunk. Unsigned chunks are cut as they arrive; signed ones must stay as they
//! are, so large ones are refused, and small pieces of them are gathered: each piece costs memory of its own while its
//! chunk is incomplete, and a client could send a byte at a time.

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::StreamBody;
use s3s::Body;

use super::trailers::{Malformed, Trailers};
use crate::BoxError;

/// The largest signed chunk, which is what one connection can make the server buffer; SDKs send 64 KiB to 1 MiB.
const SIGNED_CHUNK_BYTES_MAX: u64 = 1024 * 1024;
/// Pieces of a signed chunk are gathered up to this size; larger ones pass as they are.
const GATHERED_BYTES: usize = 64 * 1024;
/// The longest line before a chunk.
const LINE_BYTES_MAX: usize = 1024;

/// Reframes a chunked body; other bodies pass untouched.
pub fn bounded(headers: &HeaderMap, body: Body) -> Body {
    let Some(kind) = Kind::of(headers) else { return body };
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
enum Kind {
    Signed,
    Unsigned,
}

impl Kind {
    fn of(headers: &HeaderMap) -> Option<Self> {
        match headers.get("x-amz-content-sha256")?.as_bytes() {
            b"STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Some(Self::Unsigned),
            value if value.starts_with(b"STREAMING-") => Some(Self::Signed),
            _ => None,
        }
    }
}

enum State {
    Line(Vec<u8>),
    Chunk(u64),
    ChunkEnd(&'static [u8]),
    /// Behind the last chunk.
    Rest(Trailers),
}

struct Framing {
    kind: Kind,
    state: State,
    gathered: BytesMut,
}

impl Framing {
    fn new(kind: Kind) -> Self {
        Self { kind, state: State::Line(Vec::new()), gathered: BytesMut::new() }
    }

    fn feed(&mut self, mut input: Bytes) -> Result<Vec<Bytes>, BoxError> {
        let mut output = Vec::new();
        while input.has_remaining() {
            match &mut self.state {
                State::Line(line) => {
                    let end = input.iter().position(|byte| *byte == b'\n').map_or(input.len(), |at| at + 1);
                    line.extend_from_slice(&input.split_to(end));
                    if line.ends_with(b"\n") || line.len() > LINE_BYTES_MAX {
                        let line = std::mem::take(line);
                        self.begin_chunk(line, &mut output)?;
                    }
                }
                State::Chunk(remaining) => {
                    let length = usize::try_from(*remaining).unwrap_or(usize::MAX).min(input.len());
                    *remaining -= length as u64;
                    let ended = *remaining == 0;
                    self.pass_piece(input.split_to(length), ended, &mut output);
                    if ended {
                        self.state = State::ChunkEnd(b"\r\n");
                    }
                }
                State::ChunkEnd(expected) => {
                    let byte = input.split_to(1);
                    if byte[0] != expected[0] {
                        return Err(malformed());
                    }
                    *expected = &expected[1..];
                    if expected.is_empty() {
                        self.state = State::Line(Vec::new());
                    }
                    if self.kind == Kind::Signed {
                        output.push(byte);
                    }
                }
                State::Rest(trailers) => {
                    let rest = input.split_to(input.len());
                    trailers.feed(&rest).map_err(|Malformed| malformed())?;
                    output.push(rest);
                }
            }
        }
        Ok(output)
    }

    /// A body ends behind its last chunk and nowhere else; the library does not mind.
    fn end(&self) -> Result<Vec<Bytes>, BoxError> {
        match self.state {
            State::Rest(ref trailers) => trailers.end().map(|()| Vec::new()).map_err(|Malformed| malformed()),
            State::Line(_) | State::Chunk(_) | State::ChunkEnd(_) => Err("aws-chunked: it ends early".into()),
        }
    }

    fn begin_chunk(&mut self, line: Vec<u8>, output: &mut Vec<Bytes>) -> Result<(), BoxError> {
        // The library takes more for a size than we do: a line that only it understood would pass unbounded.
        self.state = match chunk_size(&line).ok_or_else(malformed)? {
            0 => State::Rest(Trailers::default()),
            size if size > SIGNED_CHUNK_BYTES_MAX && self.kind == Kind::Signed => return Err(malformed()),
            size => State::Chunk(size),
        };
        let announced_anew = self.kind == Kind::Unsigned && matches!(self.state, State::Chunk(_));
        if !announced_anew {
            output.push(Bytes::from(line));
        }
        Ok(())
    }

    fn pass_piece(&mut self, piece: Bytes, ends_chunk: bool, output: &mut Vec<Bytes>) {
        match self.kind {
            Kind::Signed if self.gathered.is_empty() && (ends_chunk || piece.len() >= GATHERED_BYTES) => {
                output.push(piece);
            }
            Kind::Signed => {
                self.gathered.extend_from_slice(&piece);
                if ends_chunk || self.gathered.len() >= GATHERED_BYTES {
                    output.push(self.gathered.split().freeze());
                }
            }
            Kind::Unsigned => {
                output.push(Bytes::from(format!("{:x}\r\n", piece.len())));
                output.push(piece);
                output.push(Bytes::from_static(b"\r\n"));
            }
        }
    }
}

fn malformed() -> BoxError {
    // The same word that the library uses, so that both are answered alike.
    "aws-chunked: FormatError".into()
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line.strip_suffix(b"\r\n")?).ok()?;
    let digits = line.split(';').next()?;
    // Numbers may have a sign, sizes may not.
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::{Framing, Kind};
    use bytes::Bytes;

    fn run(kind: Kind, pieces: &[&'static str]) -> Option<String> {
        let mut framing = Framing::new(kind);
        let mut output = Vec::new();
        for piece in pieces {
            output.extend(framing.feed(Bytes::from_static(piece.as_bytes())).ok()?);
        }
        Some(output.iter().map(|piece| std::str::from_utf8(piece).unwrap()).collect())
    }

    #[test]
    fn unsigned_chunks_are_cut_where_they_arrive() {
        let cut = run(Kind::Unsigned, &["a\r", "\n01234", "56789\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n", "\r\n"]);
        assert_eq!(cut.unwrap(), "5\r\n01234\r\n5\r\n56789\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
    }

    #[test]
    fn signed_chunks_pass_as_they_are() {
        let body = "5;chunk-signature=ab\r\n01234\r\n0;chunk-signature=cd\r\n\r\n";
        assert_eq!(run(Kind::Signed, &[body]).unwrap(), body);
        assert_eq!(run(Kind::Signed, &[&body[..9], &body[9..24], &body[24..]]).unwrap(), body);
        assert!(run(Kind::Unsigned, &["1000001\r\n"]).is_some());
    }

    #[test]
    fn signed_chunks_of_more_than_a_mebibyte_are_refused() {
        assert!(run(Kind::Signed, &["100000;chunk-signature=ab\r\n"]).is_some());
        assert_eq!(run(Kind::Signed, &["100001;chunk-signature=ab\r\n"]), None);
    }

    #[test]
    fn small_pieces_of_signed_chunks_are_gathered() {
        let mut framing = Framing::new(Kind::Signed);
        framing.feed(Bytes::from_static(b"20000;chunk-signature=ab\r\n")).unwrap();
        let one = |framing: &mut Framing| framing.feed(Bytes::from_static(b"x")).unwrap();
        let sizes: Vec<usize> = (0..0x20000).flat_map(|_| one(&mut framing)).map(|piece| piece.len()).collect();
        assert_eq!(sizes, [65536, 65536]);
    }

    #[test]
    fn nonsense_is_refused() {
        for body in
            ["zz\r\nabc", "2\r\nabXX", "ffffffff \r\nabc", "+2\r\nab", "-0\r\n", "2\nab\r\n", "2\r\r\nab", "\r\n"]
        {
            assert_eq!(run(Kind::Unsigned, &[body]), None, "{body:?}");
            assert_eq!(run(Kind::Signed, &[body]), None, "{body:?}");
        }
    }

    #[test]
    fn a_body_ends_behind_its_last_chunk() {
        let ends = |body: &'static str| {
            let mut framing = Framing::new(Kind::Unsigned);
            framing.feed(Bytes::from_static(body.as_bytes())).unwrap();
            framing.end().is_ok()
        };
        assert!(ends("2\r\nab\r\n0\r\n\r\n"));
        for body in ["", "2\r\na", "2\r\nab", "2\r\nab\r\n", "2\r\nab\r\n0"] {
            assert!(!ends(body), "{body:?}");
        }
    }
}
