//! Any request, validly signed or not: it is answered, and a refused request changes nothing.
//!
//! The first line of an example has its expected status, how it is signed, its method and its URI; headers, an empty
//! line and the body follow. `{upload}` and `{etag}` stand for the fixtures of the store.

use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Uri};

use crate::mutate::rng_of;
use crate::s3_server::{BODY, CheckedAnswer, READER_ID, S3Server};
use crate::sign;

/// A request as the client sends it.
#[derive(Clone, Debug)]
pub struct Wire {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Wire {
    /// A request without headers; the line has the method and the URI.
    pub fn plain(line: &str, body: &[u8]) -> Option<Self> {
        let (method, uri) = line.split_once(' ')?;
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        Some(Self { method, uri: uri.parse().ok()?, headers, body: body.to_vec() })
    }

    /// Like [`Self::plain`], signed; panics if the line is not a request.
    pub fn signed(line: &str, body: &[u8]) -> Self {
        let mut wire = Self::plain(line, body).unwrap_or_else(|| panic!("{line:?} is not a request"));
        sign::in_header(&mut wire, None);
        wire
    }

    /// Parses a request; None if an HTTP server would refuse it before the S3 layer.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (head, body) = match bytes.windows(2).position(|pair| pair == b"\n\n") {
            Some(at) => (&bytes[..at], &bytes[at + 2..]),
            None => (bytes, &b""[..]),
        };
        let mut lines = head.split(|byte| *byte == b'\n');
        let mut wire = Self::plain(std::str::from_utf8(lines.next()?).ok()?, body)?;
        for line in lines {
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = HeaderName::from_bytes(&line[..colon]).ok()?;
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
            if name == CONTENT_LENGTH {
                wire.headers.insert(name, value);
            } else {
                wire.headers.append(name, value);
            }
        }
        wire.cut_body()
    }

    /// The inverse of [`Self::read`].
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = format!("{} {}", self.method, self.uri).into_bytes();
        for (name, value) in &self.headers {
            bytes.extend_from_slice(b"\n");
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
        }
        bytes.extend_from_slice(b"\n\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Servers read no more of a body than Content-Length.
    fn cut_body(mut self) -> Option<Self> {
        let announced = self.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse::<usize>().ok()?;
        self.body.truncate(announced);
        Some(self)
    }

    /// Whether the client disconnects before the end of the body.
    pub fn breaks_off(&self) -> bool {
        let announced = self.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        announced.is_some_and(|announced: usize| announced > self.body.len())
    }
}

/// Parses an input: how it is signed, and the request.
fn parse(server: &mut S3Server, input: &[u8]) -> Option<(String, Wire)> {
    let (upload, etag) = server.fixtures();
    let input = replace(&replace(input, b"{upload}", upload.as_bytes()), b"{etag}", etag.as_bytes());
    // Skips the expected status.
    let rest = &input[input.iter().position(|byte| *byte == b' ')? + 1..];
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let signing = String::from_utf8_lossy(&rest[..space]).into_owned();
    Some((signing, Wire::read(&rest[space + 1..])?))
}

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(from) {
            replaced.extend_from_slice(to);
            at += from.len();
        } else {
            replaced.push(bytes[at]);
            at += 1;
        }
    }
    replaced
}

/// The request of an input, signed as its first line says.
pub fn signed(server: &mut S3Server, input: &[u8]) -> Option<Wire> {
    let (signing, mut wire) = parse(server, input)?;
    match signing.as_str() {
        "header" => drop(sign::in_header(&mut wire, None)),
        "unsigned" => drop(sign::in_header(&mut wire, Some("UNSIGNED-PAYLOAD"))),
        "query" => sign::in_query(&mut wire),
        _ => {}
    }
    Some(wire)
}

pub fn target(server: &mut S3Server, input: &[u8]) {
    if rng_of(input).u8(..4) == 0 {
        check_reader(server, input);
    }
    let Some(wire) = signed(server, input) else { return };
    let answer = server.send(&wire);
    check_object(&wire, &answer);
    server.renew();
}

/// A request with a key for another bucket changes nothing and returns nothing of this one.
fn check_reader(server: &mut S3Server, input: &[u8]) {
    let Some((_, mut wire)) = parse(server, input) else { return };
    sign::in_header_as(READER_ID, &mut wire, None);
    let answer = server.send(&wire);
    assert!(!answer.changed, "a read-only key changed a row");
    if answer.status.is_success() {
        let holds = |text: &[u8]| answer.body.windows(text.len()).any(|piece| piece == text);
        assert!(!holds(BODY) && !holds(b"<Key>a/1</Key>") && !holds(b"<Name>bucket</Name>"), "{:?}", answer.body);
        assert!(!answer.headers.contains_key("etag"), "a reader received an ETag");
    }
}

/// A GET of `/bucket/key` returns the bytes that its Content-Range names.
fn check_object(wire: &Wire, answer: &CheckedAnswer) {
    if wire.method != "GET" || wire.uri.path() != "/bucket/key" || answer.header("accept-ranges").is_none() {
        return;
    }
    match answer.header("content-range") {
        None => assert_eq!(answer.body, BODY),
        Some(range) => assert_eq!(answer.body, claimed(range)),
    }
}

/// The bytes that a `Content-Range` names.
pub fn claimed(range: &str) -> &'static [u8] {
    let (place, size) = range.strip_prefix("bytes ").and_then(|text| text.split_once('/')).expect("a range");
    let (first, last) = place.split_once('-').expect("two positions");
    assert_eq!(size, BODY.len().to_string());
    &BODY[first.parse().expect("a number")..=last.parse().expect("a number")]
}

/// Asserts the status of an example: mutations of a wrong example would test nothing.
pub fn check_example(server: &mut S3Server, name: &str, example: &[u8]) {
    let wire = signed(server, example).unwrap_or_else(|| panic!("{name} is not a request"));
    let answer = server.send(&wire);
    let status = std::str::from_utf8(&example[..3]).expect("a status");
    assert_eq!(answer.status.as_str(), status, "{name}: {}", String::from_utf8_lossy(&answer.body));
    check_object(&wire, &answer);
    server.renew();
}
