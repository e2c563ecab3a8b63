//! Keeps answers well-formed whatever characters a key holds.

use bytes::Bytes;

use super::url_encoding::forbidden_in_xml;

/// Rewrites what a parser would change or choke on: a carriage return becomes a reference, a
/// character that XML cannot carry becomes the replacement character.
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

/// Takes the quotes from the `ETag` of a document; alone among S3's answers, that of
/// `GetObjectAttributes` has none.
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

    fn rewritten(text: &'static str) -> String {
        String::from_utf8(well_formed(Bytes::from_static(text.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn only_what_breaks_parsers_is_rewritten() {
        assert_eq!(rewritten("<Key>a\tb\nc\u{ff01}</Key>"), "<Key>a\tb\nc\u{ff01}</Key>");
        assert_eq!(rewritten("<Key>a\rb</Key>"), "<Key>a&#xD;b</Key>");
        assert_eq!(rewritten("<Key>\u{1}</Key>"), "<Key>\u{fffd}</Key>");
    }

    #[test]
    fn an_etag_loses_its_quotes() {
        for xml in ["<ETag>&quot;ab-2&quot;</ETag>", "<ETag>\"ab-2\"</ETag>", "<ETag>ab-2</ETag>"] {
            assert_eq!(without_etag_quotes(&Bytes::from_static(xml.as_bytes())), "<ETag>ab-2</ETag>");
        }
    }
}
