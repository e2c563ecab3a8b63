//! Answers of a store in the format of the examples: status, headers, an empty line, body.

pub struct Scripted {
    /// The bytes that the service sends.
    pub bytes: Vec<u8>,
}

impl Scripted {
    /// Converts line ends to CRLF and adds a Content-Length if the example has none.
    pub fn read(input: &[u8]) -> Self {
        let (head, body) = match input.windows(2).position(|pair| pair == b"\n\n") {
            Some(at) => (&input[..at], &input[at + 2..]),
            None => (input, &b""[..]),
        };
        let mut bytes = b"HTTP/1.1 ".to_vec();
        let mut has_length = false;
        for line in head.split(|byte| *byte == b'\n') {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            has_length |=
                name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding");
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(b"\r\n");
        }
        if !has_length {
            bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"connection: close\r\n\r\n");
        bytes.extend_from_slice(body);
        Self { bytes }
    }

    /// None if the status line is not readable.
    pub fn status(&self) -> Option<u16> {
        std::str::from_utf8(self.bytes.get(9..12)?).ok()?.parse().ok()
    }

    pub fn is_success(&self) -> bool {
        self.status().is_some_and(|status| (200..300).contains(&status))
    }

    /// Whether a backend may conclude from this answer that an object is absent.
    pub fn may_prove_absence(&self) -> bool {
        self.is_success() || self.status() == Some(404)
    }
}
