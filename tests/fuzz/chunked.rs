//! `aws-chunked` bodies against a plain decoder: stored is exactly what the chunks hold, if every
//! signature, the trailer and the announced length agree, and otherwise nothing.
//!
//! An example's first line has the kind, the sizes of the chunks and the kind of pieces that the body
//! arrives in; the rest is the payload.

use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use fastrand::Rng;

use crate::door::Keeper;
use crate::mutate::{rng_of, tamper};
use crate::requests::Wire;
use crate::sign::{self, chunk_signature, sha256};

const CHECKSUM: &str = "x-amz-checksum-crc32";
const SIGNATURE: &str = ";chunk-signature=";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Signed,
    SignedTrailer,
    UnsignedTrailer,
}

impl Kind {
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

/// What signs the chunks of one request.
struct Chain {
    kind: Kind,
    date: String,
    previous: String,
}

impl Chain {
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

pub fn target(door: &mut Keeper, input: &[u8]) {
    let (line, payload) = match input.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (&b""[..], input),
    };
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let kind = Kind::read(words.next().unwrap_or_default());
    let sizes: Vec<usize> = words
        .next()
        .unwrap_or_default()
        .split(',')
        .filter_map(|size| size.parse().ok())
        .filter(|size| *size > 0)
        .collect();
    let mut rng = rng_of(input);
    let mut wire = announced(kind, payload.len(), &mut rng);
    let previous = sign::in_header(&mut wire, Some(kind.payload_name()));
    let date = wire.headers["x-amz-date"].to_str().expect("a date").to_owned();
    let mut chain = Chain { kind, date: date.clone(), previous: previous.clone() };
    wire.body = encode(&mut chain, payload, &sizes);
    let genuine = wire.body.clone();
    for _ in 0..rng.usize(..3) {
        tamper(&mut wire.body, &mut rng);
    }
    wire.headers.insert("content-length", wire.body.len().into());
    let answer = door.send_in_pieces(&wire, pieces(&wire.body, &mut rng));
    let declared = wire.headers["x-amz-decoded-content-length"] == payload.len().to_string().as_str();
    let decoded = decode(&mut Chain { kind, date, previous }, &wire.body);
    if answer.status == 200 {
        let stored = door.send(&Wire::signed("GET /bucket/chunked", b"")).body;
        assert_eq!(Some(&stored[..]), decoded.as_deref(), "{kind:?} {:?}", Bytes::from(wire.body));
        assert_eq!(wire.headers["x-amz-decoded-content-length"], stored.len().to_string().as_str());
        // Cheaper than a new store.
        door.send(&Wire::signed("DELETE /bucket/chunked", b""));
    } else {
        let fine = wire.body == genuine && declared;
        assert!(!fine, "{kind:?} was answered with {}: {:?}", answer.status, answer.body);
    }
    door.renew();
}

fn announced(kind: Kind, length: usize, rng: &mut Rng) -> Wire {
    let mut wire = Wire::plain("PUT /bucket/chunked", b"").expect("a request");
    let length = if rng.u8(..16) == 0 { rng.usize(..length + 3) } else { length };
    wire.headers.insert("x-amz-decoded-content-length", length.into());
    wire.headers.insert("content-encoding", "aws-chunked".parse().expect("a header"));
    if kind != Kind::Signed {
        wire.headers.insert("x-amz-trailer", CHECKSUM.parse().expect("a header"));
    }
    wire
}

fn encode(chain: &mut Chain, payload: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut sizes = sizes.iter().copied().cycle();
    let mut body = Vec::new();
    let mut rest = payload;
    loop {
        let (chunk, behind) = rest.split_at(sizes.next().unwrap_or(usize::MAX).min(rest.len()));
        rest = behind;
        let signature = if chain.kind == Kind::UnsignedTrailer {
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
    if chain.kind != Kind::Signed {
        let line = trailer_line(payload);
        body.extend_from_slice(format!("{line}\r\n").as_bytes());
        if chain.kind == Kind::SignedTrailer {
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

/// What a body holds; `None` where anything in it is not as it should be.
fn decode(chain: &mut Chain, mut body: &[u8]) -> Option<Vec<u8>> {
    let mut payload = Vec::new();
    loop {
        let (line, rest) = split_line(body)?;
        let line = std::str::from_utf8(line).ok()?;
        let (size, extension) = line.split_at(line.find(';').unwrap_or(line.len()));
        let signature = extension.strip_prefix(SIGNATURE);
        let digits = size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = usize::from_str_radix(size, 16).ok().filter(|_| digits)?;
        let chunk = rest.get(..size)?;
        if chain.kind != Kind::UnsignedTrailer && signature != Some(chain.sign(chunk).as_str()) {
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

/// The trailer as lines; white space around values and between lines means nothing.
fn trailer_fits(chain: &Chain, payload: &[u8], trailer: &[u8]) -> bool {
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
        Kind::Signed => true,
        Kind::UnsignedTrailer => value(CHECKSUM).is_some_and(|sum| line.ends_with(&format!(":{sum}"))),
        Kind::SignedTrailer => {
            value("x-amz-trailer-signature") == Some(chain.sign_trailer(&line))
                && value(CHECKSUM).is_some_and(|sum| line.ends_with(&format!(":{sum}")))
        }
    }
}

/// The body in pieces of a few bytes or many: where they end must not matter.
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
