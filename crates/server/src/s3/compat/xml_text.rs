//! Keeps XML responses well-formed, whatever characters a key contains.

use bytes::Bytes;

use crate::s3::url_encoding::forbidden_in_xml;

/// Replaces what a parser would change or refuse: a carriage return by a character reference, a character that XML
/// cannot represent by the replacement character.
pub fn well_formed(xml: Bytes) -> Bytes {
    let suspicious = |byte: &u8| (*byte < b' ' && !matches!(byte, b'\n' | b'\t')) || *byte == 0xef;
    if !xml.iter().any(suspicious) {
        return xml;
    }
    let Ok(text) = std::str::from_utf8(&xml) else { return xml };
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\r' => safe.push_str("&#xD;"),
            _ if forbidden_in_xml(character) => safe.push(char::REPLACEMENT_CHARACTER),
            _ => safe.push(character),
        }
    }
    Bytes::from(safe)
}

/// Removes the quotes from `ETag` elements: S3 quotes them in all responses except `GetObjectAttributes`.
pub fn without_etag_quotes(xml: &Bytes) -> Bytes {
    match std::str::from_utf8(xml) {
        Ok(text) => {
            let opened = text.replace("<ETag>&quot;", "<ETag>").replace("<ETag>\"", "<ETag>");
            Bytes::from(opened.replace("&quot;</ETag>", "</ETag>").replace("\"</ETag>", "</ETag>"))
        }
        Err(_) => xml.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::{well_formed, without_etag_quotes};
    use bytes::Bytes;

    fn replaced(text: &'static str) -> String {
        String::from_utf8(well_formed(Bytes::from_static(text.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn only_characters_that_break_parsers_are_replaced() {
        assert_eq!(replaced("<Key>a\tb\nc\u{ff01}</Key>"), "<Key>a\tb\nc\u{ff01}</Key>");
        assert_eq!(replaced("<Key>a\rb</Key>"), "<Key>a&#xD;b</Key>");
        assert_eq!(replaced("<Key>\u{1}</Key>"), "<Key>\u{fffd}</Key>");
    }

    #[test]
    fn etag_quotes_are_removed() {
        for xml in ["<ETag>&quot;ab-2&quot;</ETag>", "<ETag>\"ab-2\"</ETag>", "<ETag>ab-2</ETag>"] {
            assert_eq!(without_etag_quotes(&Bytes::from_static(xml.as_bytes())), "<ETag>ab-2</ETag>");
        }
    }
}
