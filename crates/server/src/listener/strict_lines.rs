//! Refuses requests whose header lines end in a bare LF.
//!
//! The HTTP library accepts LF for CRLF. Proxies differ, and two parsers that disagree allow request smuggling. This
//! scanner sees the bytes before the library and replaces a bare LF in a request head by NUL, which the library refuses
//! with 400.

use memchr::memchr;

/// What takes the place of a bare LF; no header line may contain it.
const INVALID: u8 = 0;
/// The most bytes of one line that are kept between reads. The HTTP library refuses longer heads.
const LINE_BYTES_MAX: usize = super::HEAD_BYTES_MAX;

/// The scanner of one connection.
pub(super) struct StrictLines {
    position: ScanPosition,
}

enum ScanPosition {
    Head(Head),
    /// Remaining bytes of the body.
    Body(u64),
    /// Behind a request in chunks or one that the HTTP library refuses: the listener closes the connection after it.
    Unknown,
}

#[derive(Default)]
struct Head {
    /// The beginning of a line that arrived in several reads.
    line: Vec<u8>,
    /// The request line is complete.
    started: bool,
    body_bytes: u64,
    is_chunked: bool,
}

impl StrictLines {
    pub(super) fn new() -> Self {
        Self { position: ScanPosition::Head(Head::default()) }
    }

    /// Scans received bytes and invalidates a bare LF in a head.
    pub(super) fn scan(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let (length, next) = match &mut self.position {
                ScanPosition::Unknown => return,
                ScanPosition::Body(left) => {
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= length as u64;
                    (length, (*left == 0).then(|| ScanPosition::Head(Head::default())))
                }
                ScanPosition::Head(head) => match memchr(b'\n', bytes) {
                    Some(end) => (end + 1, head.end_line(&mut bytes[..=end])),
                    None => (bytes.len(), head.keep(bytes)),
                },
            };
            if let Some(next) = next {
                self.position = next;
            }
            bytes = &mut bytes[length..];
        }
    }
}

impl Head {
    /// Keeps the beginning of a line until its end arrives.
    fn keep(&mut self, piece: &[u8]) -> Option<ScanPosition> {
        self.line.extend_from_slice(piece);
        (self.line.len() > LINE_BYTES_MAX).then_some(ScanPosition::Unknown)
    }

    /// Takes the rest of a line, up to its LF; returns what follows if the line ends the head.
    fn end_line(&mut self, piece: &mut [u8]) -> Option<ScanPosition> {
        let mut line = std::mem::take(&mut self.line);
        let whole = if line.is_empty() {
            &*piece
        } else {
            line.extend_from_slice(piece);
            &line
        };
        match whole.strip_suffix(b"\r\n") {
            // Empty lines before the request line are skipped.
            Some(text) if text.iter().all(|byte| *byte == b'\r') => self.started.then(|| self.what_follows()),
            Some(text) => {
                self.read(text);
                None
            }
            None => {
                piece.iter_mut().rev().take(1).for_each(|last| *last = INVALID);
                Some(ScanPosition::Unknown)
            }
        }
    }

    fn read(&mut self, line: &[u8]) {
        // The first line is the request line.
        if !std::mem::replace(&mut self.started, true) {
            return;
        }
        let Some(colon) = memchr(b':', line) else { return };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.eq_ignore_ascii_case(b"content-length") {
            self.body_bytes = number(value);
        }
        self.is_chunked |= name.eq_ignore_ascii_case(b"transfer-encoding");
    }

    fn what_follows(&self) -> ScanPosition {
        match self.body_bytes {
            _ if self.is_chunked => ScanPosition::Unknown,
            0 => ScanPosition::Head(Self::default()),
            length => ScanPosition::Body(length),
        }
    }
}

/// The number in a header value; 0 for what the HTTP library refuses.
fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value.trim_ascii()).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::StrictLines;

    /// The bytes as the HTTP library sees them, sent in pieces of this size.
    fn scanned(text: &str, piece_bytes: usize) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let mut lines = StrictLines::new();
        for piece in bytes.chunks_mut(piece_bytes) {
            lines.scan(piece);
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn requests_with_crlf_pass_unchanged() {
        let get = "\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n";
        let put = "PUT /b/k HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 12\r\n\r\nab\ncd\n\n\r\n\r\n\n";
        let chunked = "PUT /b/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\n";
        for text in [get.to_owned(), format!("{put}{get}"), format!("{get}{put}{put}{get}"), format!("{get}{chunked}")]
        {
            for piece_bytes in [1, 2, 7, 1000] {
                assert_eq!(scanned(&text, piece_bytes), text);
            }
        }
    }

    #[test]
    fn bare_lf_in_a_head_is_invalidated() {
        let put = "PUT /b/k HTTP/1.1\r\nContent-Length: 2\r\n\r\n\n\n";
        for bad in
            ["GET / HTTP/1.1\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\n"]
        {
            for text in [bad.to_owned(), format!("{put}{bad}")] {
                for piece_bytes in [1, 3, 1000] {
                    assert!(scanned(&text, piece_bytes).contains('\0'), "{text:?}");
                }
            }
        }
        assert!(scanned("\nGET / HTTP/1.1\r\n\r\n", 1).starts_with('\0'));
    }
}
