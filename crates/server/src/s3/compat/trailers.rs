//! Refuses `aws-chunked` bodies with two trailers of the same name.
//!
//! The protocol library keeps the last one, other parsers the first: the server could verify another checksum than a
//! proxy sees.

/// Limit for all trailers together, the same as in the library.
const BYTES_MAX: usize = 16 * 1024;

/// The trailers are too long, or two of them have the same name.
#[derive(Debug, PartialEq, Eq)]
pub struct MalformedTrailers;

/// Collects the names of the trailers.
#[derive(Debug, Default)]
pub struct Trailers {
    bytes: usize,
    line: Vec<u8>,
    names: Vec<Vec<u8>>,
}

impl Trailers {
    /// Reads the next piece of the body.
    pub fn feed(&mut self, piece: &[u8]) -> Result<(), MalformedTrailers> {
        self.bytes = self.bytes.saturating_add(piece.len());
        if self.bytes > BYTES_MAX {
            return Err(MalformedTrailers);
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

    /// Checks the last line, which may have no line end.
    pub fn end(&self) -> Result<(), MalformedTrailers> {
        self.new_name(&self.line).map(drop)
    }

    /// The name in a line, if the line is not empty.
    fn new_name(&self, line: &[u8]) -> Result<Option<Vec<u8>>, MalformedTrailers> {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        match name {
            name if name.is_empty() => Ok(None),
            name if self.names.contains(&name) => Err(MalformedTrailers),
            name => Ok(Some(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MalformedTrailers, Trailers};

    fn read(pieces: &[&str]) -> Result<(), MalformedTrailers> {
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
        assert_eq!(read(&["a:1\r\na:1\r\n\r\n"]), Err(MalformedTrailers));
        assert_eq!(read(&["a:1\r\nb:2\r\n", "A", " :2"]), Err(MalformedTrailers));
        assert_eq!(read(&["a:1\na:2"]), Err(MalformedTrailers));
    }

    #[test]
    fn trailers_are_bounded() {
        assert_eq!(read(&[&"x".repeat(16 * 1024)]), Ok(()));
        assert_eq!(read(&[&"x".repeat(16 * 1024), "x"]), Err(MalformedTrailers));
    }
}
