//! JSON whose strings hold no control and no bidirectional characters.

use std::io;

use s3o_model::escape::must_be_escaped;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// Compact JSON without a line end. A JSON parser restores the original strings.
pub(super) fn to_line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = Vec::with_capacity(256);
    value.serialize(&mut Serializer::with_formatter(&mut line, Escaping))?;
    Ok(line)
}

/// Escapes what `serde_json` leaves as it is: DEL, C1 and bidirectional characters.
struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut written = 0;
        for (at, character) in fragment.char_indices().filter(|(_, character)| must_be_escaped(*character)) {
            CompactFormatter.write_string_fragment(writer, &fragment[written..at])?;
            // All of them are in the basic multilingual plane, so four digits are enough.
            write!(writer, "\\u{:04x}", u32::from(character))?;
            written = at + character.len_utf8();
        }
        CompactFormatter.write_string_fragment(writer, &fragment[written..])
    }
}

#[cfg(test)]
mod tests {
    use super::to_line;
    use serde_json::json;

    #[test]
    fn escaped_line_parses_to_the_original_value() {
        let value = json!({"key": "a\u{202e}b\u{9b}\n\u{7f}\u{fc}\"\\", "plain": "text", "n": [1, null, true]});
        let line = String::from_utf8(to_line(&value).unwrap()).unwrap();
        assert!(line.contains(r#""a\u202eb\u009b\n\u007fü\"\\""#), "{line}");
        assert!(line.contains(r#""plain":"text""#), "{line}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }
}
