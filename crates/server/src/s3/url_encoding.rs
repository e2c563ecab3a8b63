//! `encoding-type=url`: names in listings that XML can carry and clients can decode.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::refusal::Refusal;

/// What stays readable. A space becomes `%20`, not `+`, so that every decoder agrees on it.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// How a listing writes names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameEncoding {
    /// As they are.
    Plain,
    /// Percent-encoded.
    Url,
}

impl NameEncoding {
    /// What the client asked for; any value but `url` is refused.
    pub fn asked(encoding_type: Option<&str>) -> Result<Self, Refusal> {
        match encoding_type {
            None | Some("") => Ok(Self::Plain),
            Some("url") => Ok(Self::Url),
            Some(_) => Err(Refusal::because("InvalidArgument", "Invalid Encoding Method specified in Request")),
        }
    }

    /// Turns to percent-encoding where a name holds a character that XML cannot carry: an answer
    /// that no parser reads would hide the whole page.
    #[must_use]
    pub fn fit_for<'a>(self, mut names: impl Iterator<Item = &'a str>) -> Self {
        if self == Self::Plain && names.any(|name| name.chars().any(forbidden_in_xml)) { Self::Url } else { self }
    }

    /// A name, written.
    pub fn write(self, name: &str) -> String {
        match self {
            Self::Plain => name.to_owned(),
            Self::Url => utf8_percent_encode(name, ENCODED).to_string(),
        }
    }

    /// What the answer states.
    pub fn stated(self) -> Option<s3s::dto::EncodingType> {
        (self == Self::Url).then(|| s3s::dto::EncodingType::from_static(s3s::dto::EncodingType::URL))
    }
}

/// Whether XML 1.0 has no way to write this character.
pub fn forbidden_in_xml(character: char) -> bool {
    matches!(character, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Decodes one piece of an url-encoded query; `None` where it is not UTF-8.
pub fn decode_query_piece(piece: &str) -> Option<String> {
    let spaced = piece.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// The parameters of a query, decoded: a name may be written in many ways, and all of them count.
pub fn parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    let decoded = |piece: &str| decode_query_piece(piece).unwrap_or_else(|| piece.to_owned());
    query.split('&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
}

#[cfg(test)]
mod tests {
    use super::{NameEncoding, decode_query_piece, parameters};

    #[test]
    fn parameters_are_known_however_they_are_written() {
        let found: Vec<_> = parameters("a=1&&%62=x+y%3D&c").collect();
        let expected = [("a", "1"), ("b", "x y="), ("c", "")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn names_are_encoded_except_slashes() {
        let url = NameEncoding::Url;
        assert_eq!(url.write("a/b c+d%\u{1}ä"), "a/b%20c%2Bd%25%01%C3%A4");
        assert_eq!(decode_query_piece(&url.write("a b+c")).as_deref(), Some("a b+c"));
        assert_eq!(NameEncoding::Plain.write("a b"), "a b");
    }

    #[test]
    fn only_url_is_known() {
        assert_eq!(NameEncoding::asked(None).unwrap(), NameEncoding::Plain);
        assert_eq!(NameEncoding::asked(Some("url")).unwrap(), NameEncoding::Url);
        assert_eq!(NameEncoding::asked(Some("base64")).unwrap_err().code, "InvalidArgument");
    }

    #[test]
    fn what_xml_cannot_carry_forces_encoding() {
        let plain = NameEncoding::Plain;
        assert_eq!(plain.fit_for(["a", "b\n"].into_iter()), NameEncoding::Plain);
        assert_eq!(plain.fit_for(["a", "b\u{1}"].into_iter()), NameEncoding::Url);
    }
}
