//! `aws-chunked` bodies against a plain decoder: the server stores exactly the content of the chunks if every
//! signature, the trailer and the declared length agree, and nothing otherwise.
//!
//! The first line of an example has the kind and the sizes of the chunks; the rest is the payload.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use fastrand::Rng;

use crate::mutate::{rng_of, tamper};
use crate::requests::Wire;
use crate::s3_server::S3Server;
use crate::sign::{self, chunk_signature, sha256};

const CHECKSUM: &str = "x-amz-checksum-crc32";
const SIGNATURE: &str = ";chunk-signature=";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkedKind {
    Signed,
    SignedTrailer,
    UnsignedTrailer,
}

impl ChunkedKind {
    fn read(text: &str) -> Self {
        match text {
            "signed" => Self::Signed,
            "signed-trailer" => Self::SignedTrailer,
            _ => Self::UnsignedTrailer,
        }
    }

    fn payload_name(self) -> &'static str {
        match self {
            Self::Signed => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            Self::SignedTrailer => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
            Self::UnsignedTrailer => "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        }
    }
}

/// The chunk signatures of one request.
struct SignatureChain {
    kind: ChunkedKind,
    date: String,
    previous: String,
}

impl SignatureChain {
    fn sign(&mut self, data: &[u8]) -> String {
        let hashes = format!("{}\n{}", sha256(b""), sha256(data));
        self.previous = chunk_signature("AWS4-HMAC-SHA256-PAYLOAD", &self.date, &self.previous, &hashes);
        self.previous.clone()
    }

    fn sign_trailer(&self, line: &str) -> String {
        let hash = sha256(format!("{line}\n").as_bytes());
        chunk_signature("AWS4-HMAC-SHA256-TRAILER", &self.date, &self.previous, &hash)
    }
}

/// The kind, the sizes of the chunks and the payload of an input.
fn parse(input: &[u8]) -> (ChunkedKind, Vec<usize>, &[u8]) {
    let (line, payload) = match input.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (&b""[..], input),
    };
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let kind = ChunkedKind::read(words.next().unwrap_or_default());
    let sizes = words.next().unwrap_or_default().split(',').filter_map(|size| size.parse().ok());
    (kind, sizes.filter(|size| *size > 0).collect(), payload)
}

pub fn target(server: &mut S3Server, input: &[u8]) {
    let (kind, sizes, payload) = parse(input);
    let mut rng = rng_of(input);
    let mut wire = announced(kind, payload.len(), &mut rng);
    let previous = sign::in_header(&mut wire, Some(kind.payload_name()));
    let date = wire.headers["x-amz-date"].to_str().expect("a date").to_owned();
    let mut chain = SignatureChain { kind, date: date.clone(), previous: previous.clone() };
    wire.body = encode(&mut chain, payload, &sizes);
    let genuine = wire.body.clone();
    for _ in 0..rng.usize(..3) {
        tamper(&mut wire.body, &mut rng);
    }
    wire.headers.insert("content-length", wire.body.len().into());
    let answer = server.send_in_pieces(&wire, pieces(&wire.body, &mut rng));
    let declared = wire.headers["x-amz-decoded-content-length"] == payload.len().to_string().as_str();
    let decoded = decode(&mut SignatureChain { kind, date, previous }, &wire.body);
    if answer.status == 200 {
        let stored = server.send(&Wire::signed("GET /bucket/chunked", b"")).body;
        assert_eq!(Some(&stored[..]), decoded.as_deref(), "{kind:?} {:?}", Bytes::from(wire.body));
        assert_eq!(wire.headers["x-amz-decoded-content-length"], stored.len().to_string().as_str());
        // Faster than a new instance.
        server.send(&Wire::signed("DELETE /bucket/chunked", b""));
    } else {
        let fine = wire.body == genuine && declared;
        assert!(!fine, "{kind:?} was answered with {}: {:?}", answer.status, answer.body);
    }
    server.renew();
}

fn announced(kind: ChunkedKind, length: usize, rng: &mut Rng) -> Wire {
    let mut wire = Wire::plain("PUT /bucket/chunked", b"").expect("a request");
    let length = if rng.u8(..16) == 0 { rng.usize(..length + 3) } else { length };
    wire.headers.insert("x-amz-decoded-content-length", length.into());
    wire.headers.insert("content-encoding", "aws-chunked".parse().expect("a header"));
    if kind != ChunkedKind::Signed {
        wire.headers.insert("x-amz-trailer", CHECKSUM.parse().expect("a header"));
    }
    wire
}

fn encode(chain: &mut SignatureChain, payload: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut sizes = sizes.iter().copied().cycle();
    let mut body = Vec::new();
    let mut rest = payload;
    loop {
        let (chunk, behind) = rest.split_at(sizes.next().unwrap_or(usize::MAX).min(rest.len()));
        rest = behind;
        let signature = if chain.kind == ChunkedKind::UnsignedTrailer {
            String::new()
        } else {
            format!("{SIGNATURE}{}", chain.sign(chunk))
        };
        body.extend_from_slice(format!("{:x}{signature}\r\n", chunk.len()).as_bytes());
        body.extend_from_slice(chunk);
        if chunk.is_empty() {
            break;
        }
        body.extend_from_slice(b"\r\n");
    }
    if chain.kind != ChunkedKind::Signed {
        let line = trailer_line(payload);
        body.extend_from_slice(format!("{line}\r\n").as_bytes());
        if chain.kind == ChunkedKind::SignedTrailer {
            let signature = chain.sign_trailer(&line);
            body.extend_from_slice(format!("x-amz-trailer-signature:{signature}\r\n").as_bytes());
        }
    }
    body.extend_from_slice(b"\r\n");
    body
}

fn trailer_line(payload: &[u8]) -> String {
    let sum = crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, payload).to_be_bytes();
    format!("{CHECKSUM}:{}", base64_simd::STANDARD.encode_to_string(&sum[4..]))
}

/// The payload of a body; None if any part of it is not valid.
fn decode(chain: &mut SignatureChain, mut body: &[u8]) -> Option<Vec<u8>> {
    let mut payload = Vec::new();
    loop {
        let (line, rest) = split_line(body)?;
        let line = std::str::from_utf8(line).ok()?;
        let (size, extension) = line.split_at(line.find(';').unwrap_or(line.len()));
        let signature = extension.strip_prefix(SIGNATURE);
        let digits = size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = usize::from_str_radix(size, 16).ok().filter(|_| digits)?;
        let chunk = rest.get(..size)?;
        if chain.kind != ChunkedKind::UnsignedTrailer && signature != Some(chain.sign(chunk).as_str()) {
            return None;
        }
        payload.extend_from_slice(chunk);
        body = &rest[size..];
        if size == 0 {
            return trailer_fits(chain, &payload, body).then_some(payload);
        }
        body = body.strip_prefix(b"\r\n")?;
    }
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..at], &bytes[at + 2..]))
}

/// Whether the trailer is valid; white space around values and between lines is ignored.
fn trailer_fits(chain: &SignatureChain, payload: &[u8], trailer: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(trailer) else { return false };
    let lines = text.split('\n').map(str::trim).filter(|line| !line.is_empty());
    let pairs: Option<Vec<_>> = lines.map(|line| line.split_once(':')).collect();
    let Some(pairs) = pairs else { return false };
    let value = |wanted: &str| {
        let found = pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim().to_owned())
    };
    let line = trailer_line(payload);
    match chain.kind {
        ChunkedKind::Signed => true,
        ChunkedKind::UnsignedTrailer => value(CHECKSUM).is_some_and(|sum| line.ends_with(&format!(":{sum}"))),
        ChunkedKind::SignedTrailer => {
            value("x-amz-trailer-signature") == Some(chain.sign_trailer(&line))
                && value(CHECKSUM).is_some_and(|sum| line.ends_with(&format!(":{sum}")))
        }
    }
}

/// Splits the body at random: frame boundaries must not matter.
fn pieces(body: &[u8], rng: &mut Rng) -> Vec<Bytes> {
    let longest = [1, 7, 64, 4096][rng.usize(..4)];
    let mut pieces = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(rng.usize(1..=longest).min(rest.len()));
        pieces.push(Bytes::copy_from_slice(piece));
        rest = behind;
    }
    pieces
}
