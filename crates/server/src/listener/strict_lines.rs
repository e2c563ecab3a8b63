//! Makes requests whose header lines end in a bare LF malformed.
//!
//! The HTTP library accepts LF for CRLF. Proxies differ there, and what two parsers read differently can hide one request
//! within another. This scanner sees the bytes before the library does and replaces a bare LF in a request head by a NUL,
//! which the library refuses with 400.

/// The longest header name that the scanner compares.
const NAME_BYTES_MAX: usize = 32;
/// A `Content-Length` of more digits does not fit into 64 bits.
const LENGTH_DIGITS_MAX: usize = 20;
/// What takes the place of a bare LF; no header line may contain it.
const INVALID: u8 = 0;

/// Follows the requests on one connection.
pub(super) struct StrictLines {
    position: Position,
}

enum Position {
    Head(Head),
    /// This many bytes of a body are still to come.
    Body(u64),
    /// Behind a request in chunks: the listener closes the connection after it.
    Unknown,
}

#[derive(Default)]
struct Head {
    after_cr: bool,
    line: Line,
    /// The request line is complete.
    started: bool,
    body_bytes: u64,
    is_chunked: bool,
}

#[derive(Default)]
struct Line {
    bytes: usize,
    name: Vec<u8>,
    name_ended: bool,
    value: Vec<u8>,
}

impl StrictLines {
    pub(super) fn new() -> Self {
        Self { position: Position::Head(Head::default()) }
    }

    /// Follows bytes that arrived, and invalidates a bare LF among those of a head.
    pub(super) fn scan(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            match &mut self.position {
                Position::Unknown => return,
                Position::Body(left) => {
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= length as u64;
                    if *left == 0 {
                        self.position = Position::Head(Head::default());
                    }
                    bytes = &mut bytes[length..];
                }
                Position::Head(head) => {
                    let (first, rest) = bytes.split_at_mut(1);
                    if let Some(next) = head.take(&mut first[0]) {
                        self.position = next;
                    }
                    bytes = rest;
                }
            }
        }
    }
}

impl Head {
    /// Takes one byte; says what follows when it was the last one of the head.
    fn take(&mut self, byte: &mut u8) -> Option<Position> {
        let after_cr = std::mem::replace(&mut self.after_cr, *byte == b'\r');
        match *byte {
            b'\n' if after_cr => self.end_line(),
            b'\n' => {
                *byte = INVALID;
                Some(Position::Unknown)
            }
            b'\r' => None,
            other => {
                self.line.take(other);
                None
            }
        }
    }

    fn end_line(&mut self) -> Option<Position> {
        if self.line.bytes == 0 {
            // Empty lines before the request line are skipped.
            return self.started.then(|| self.what_follows());
        }
        if self.started && self.line.is_named(b"content-length") {
            self.body_bytes = self.line.number();
        }
        self.is_chunked |= self.started && self.line.is_named(b"transfer-encoding");
        self.started = true;
        self.line.clear();
        None
    }

    fn what_follows(&self) -> Position {
        match self.body_bytes {
            _ if self.is_chunked => Position::Unknown,
            0 => Position::Head(Self::default()),
            length => Position::Body(length),
        }
    }
}

impl Line {
    fn take(&mut self, byte: u8) {
        self.bytes += 1;
        if self.name_ended {
            if byte.is_ascii_digit() && self.value.len() <= LENGTH_DIGITS_MAX {
                self.value.push(byte);
            }
        } else if byte == b':' {
            self.name_ended = true;
        } else if self.name.len() < NAME_BYTES_MAX {
            self.name.push(byte.to_ascii_lowercase());
        }
    }

    /// Keeps what was allocated.
    fn clear(&mut self) {
        self.name.clear();
        self.value.clear();
        (self.bytes, self.name_ended) = (0, false);
    }

    fn is_named(&self, name: &[u8]) -> bool {
        self.name_ended && self.name == name
    }

    fn number(&self) -> u64 {
        std::str::from_utf8(&self.value).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }
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
    fn bare_lf_in_a_head_becomes_invalid() {
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
