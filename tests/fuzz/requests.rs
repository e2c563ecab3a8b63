//! Any request at all, correctly signed or not: it is answered, and a refused one changes nothing.
//!
//! An example's first line has the status that it is answered with, how it is signed, its method and
//! its URI; then follow headers, an empty line and the body. `{upload}` and `{etag}` stand for what
//! the store holds.

use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Uri};

use crate::door::{Answer, BODY, Keeper, READER_ID};
use crate::mutate::rng_of;
use crate::sign;

/// A request as it is sent.
#[derive(Clone, Debug)]
pub struct Wire {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Wire {
    /// A request without headers; the line is its method and its URI.
    pub fn plain(line: &str, body: &[u8]) -> Option<Self> {
        let (method, uri) = line.split_once(' ')?;
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        Some(Self { method, uri: uri.parse().ok()?, headers, body: body.to_vec() })
    }

    /// The same, signed.
    pub fn signed(line: &str, body: &[u8]) -> Self {
        let mut wire = Self::plain(line, body).unwrap_or_else(|| panic!("{line:?} is no request"));
        sign::in_header(&mut wire, None);
        wire
    }

    /// Reads a request line, headers and a body; `None` where no server would get so far.
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

    /// The same request as text.
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

    /// A server reads no more of a body than was announced.
    fn cut_body(mut self) -> Option<Self> {
        let announced = self.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse::<usize>().ok()?;
        self.body.truncate(announced);
        Some(self)
    }

    /// Whether the client hung up before the end of the body.
    pub fn breaks_off(&self) -> bool {
        let announced = self.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        announced.is_some_and(|announced: usize| announced > self.body.len())
    }
}

/// An example, or what became of one: how it is signed, and the request.
fn read(door: &mut Keeper, input: &[u8]) -> Option<(String, Wire)> {
    let (upload, etag) = door.fixtures();
    let input = replace(&replace(input, b"{upload}", upload.as_bytes()), b"{etag}", etag.as_bytes());
    // The status.
    let rest = &input[input.iter().position(|byte| *byte == b' ')? + 1..];
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let manner = String::from_utf8_lossy(&rest[..space]).into_owned();
    Some((manner, Wire::read(&rest[space + 1..])?))
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

/// The request of an input, signed as it says.
pub fn signed(door: &mut Keeper, input: &[u8]) -> Option<Wire> {
    let (manner, mut wire) = read(door, input)?;
    match manner.as_str() {
        "header" => drop(sign::in_header(&mut wire, None)),
        "unsigned" => drop(sign::in_header(&mut wire, Some("UNSIGNED-PAYLOAD"))),
        "query" => sign::in_query(&mut wire),
        _ => {}
    }
    Some(wire)
}

pub fn target(door: &mut Keeper, input: &[u8]) {
    if rng_of(input).u8(..4) == 0 {
        check_reader(door, input);
    }
    let Some(wire) = signed(door, input) else { return };
    let answer = door.send(&wire);
    check_object(&wire, &answer);
    door.renew();
}

/// Whatever is asked with a key that may only read elsewhere, nothing changes and nothing is told.
fn check_reader(door: &mut Keeper, input: &[u8]) {
    let Some((_, mut wire)) = read(door, input) else { return };
    sign::in_header_as(READER_ID, &mut wire, None);
    let answer = door.send(&wire);
    assert!(!answer.changed, "a reader changed something");
    if answer.status.is_success() {
        let holds = |text: &[u8]| answer.body.windows(text.len()).any(|piece| piece == text);
        assert!(!holds(BODY) && !holds(b"<Key>a/1</Key>") && !holds(b"<Name>bucket</Name>"), "{:?}", answer.body);
        assert!(!answer.headers.contains_key("etag"), "a reader was told of an object");
    }
}

/// What is read of `/bucket/key` is a piece of what it holds, and says which one.
fn check_object(wire: &Wire, answer: &Answer) {
    if wire.method != "GET" || wire.uri.path() != "/bucket/key" || answer.header("accept-ranges").is_none() {
        return;
    }
    match answer.header("content-range") {
        None => assert_eq!(answer.body, BODY),
        Some(range) => assert_eq!(answer.body, claimed(range)),
    }
}

/// The bytes that a `Content-Range` speaks of.
pub fn claimed(range: &str) -> &'static [u8] {
    let (place, size) = range.strip_prefix("bytes ").and_then(|text| text.split_once('/')).expect("a range");
    let (first, last) = place.split_once('-').expect("two positions");
    assert_eq!(size, BODY.len().to_string());
    &BODY[first.parse().expect("a number")..=last.parse().expect("a number")]
}

/// An example has the answer that it says; without this, mutating it would test nothing.
pub fn check_example(door: &mut Keeper, name: &str, example: &[u8]) {
    let wire = signed(door, example).unwrap_or_else(|| panic!("{name} is no request"));
    let answer = door.send(&wire);
    let status = std::str::from_utf8(&example[..3]).expect("a status");
    assert_eq!(answer.status.as_str(), status, "{name}: {}", String::from_utf8_lossy(&answer.body));
    check_object(&wire, &answer);
    door.renew();
}
