//! The trailers of an `aws-chunked` body: no two of them may have one name.
//!
//! The protocol library keeps the last of several, others the first: the checksum that is verified could be another one
//! than a proxy or a log shows.

/// The most bytes of all trailers together, the bound of the protocol library.
const BYTES_MAX: usize = 16 * 1024;

/// The trailers of a body cannot be read, or two of them have the same name.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

/// The names of the trailers so far.
#[derive(Debug, Default)]
pub struct Trailers {
    bytes: usize,
    line: Vec<u8>,
    names: Vec<Vec<u8>>,
}

impl Trailers {
    /// Reads the next piece of the body.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), Malformed> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes > BYTES_MAX {
            return Err(Malformed);
        }
        for byte in piece {
            if *byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.names.extend(self.new_name(&line)?);
            } else {
                self.line.push(*byte);
            }
        }
        Ok(())
    }

    /// Reads the last line, which may have no end.
    pub fn end(&self) -> Result<(), Malformed> {
        self.new_name(&self.line).map(drop)
    }

    /// The name in a line, if the line is not empty.
    fn new_name(&self, line: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        match name {
            name if name.is_empty() => Ok(None),
            name if self.names.contains(&name) => Err(Malformed),
            name => Ok(Some(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Malformed, Trailers};

    fn read(pieces: &[&str]) -> Result<(), Malformed> {
        let mut trailers = Trailers::default();
        for piece in pieces {
            trailers.feed(piece.as_bytes())?;
        }
        trailers.end()
    }

    #[test]
    fn trailers_of_different_names_pass() {
        assert_eq!(read(&[]), Ok(()));
        assert_eq!(read(&["\r\n"]), Ok(()));
        assert_eq!(read(&["x-amz-checksum-crc32:AAAAAA==\r\nx-amz-tr", "ailer-signature:ab\r\n\r\n"]), Ok(()));
    }

    #[test]
    fn two_trailers_of_one_name_are_malformed() {
        assert_eq!(read(&["a:1\r\na:1\r\n\r\n"]), Err(Malformed));
        assert_eq!(read(&["a:1\r\nb:2\r\n", "A", " :2"]), Err(Malformed));
        assert_eq!(read(&["a:1\na:2"]), Err(Malformed));
    }

    #[test]
    fn trailers_are_bounded() {
        assert_eq!(read(&[&"x".repeat(16 * 1024)]), Ok(()));
        assert_eq!(read(&[&"x".repeat(16 * 1024), "x"]), Err(Malformed));
    }
}
