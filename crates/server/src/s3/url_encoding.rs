//! URL encoding: names in listings (`encoding-type=url`) and query parameters.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::refusal::Refusal;

/// A space becomes `%20`, not `+`, which some clients do not decode.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// How a listing encodes names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameEncoding {
    Plain,
    Url,
}

impl NameEncoding {
    /// Parses `encoding-type`; any value but `url` is refused.
    pub fn requested(encoding_type: Option<&str>) -> Result<Self, Refusal> {
        match encoding_type {
            None | Some("") => Ok(Self::Plain),
            Some("url") => Ok(Self::Url),
            Some(_) => Err(Refusal::because("InvalidArgument", "Invalid Encoding Method specified in Request")),
        }
    }

    /// Switches to percent-encoding if a name has a character that XML cannot represent: clients could not parse such
    /// a page.
    #[must_use]
    pub fn fit_for<'a>(self, mut names: impl Iterator<Item = &'a str>) -> Self {
        if self == Self::Plain && names.any(|name| name.chars().any(forbidden_in_xml)) { Self::Url } else { self }
    }

    /// Percent-encodes a name if the listing asks for it.
    pub fn write(self, name: &str) -> String {
        match self {
            Self::Plain => name.to_owned(),
            Self::Url => utf8_percent_encode(name, ENCODED).to_string(),
        }
    }

    /// The `EncodingType` element of the response.
    pub fn stated(self) -> Option<s3s::dto::EncodingType> {
        (self == Self::Url).then(|| s3s::dto::EncodingType::from_static(s3s::dto::EncodingType::URL))
    }
}

/// True if XML 1.0 cannot represent this character.
pub fn forbidden_in_xml(character: char) -> bool {
    matches!(character, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Decodes a name or value of a URL-encoded query; `None` if it is not UTF-8.
pub fn decode_query_piece(piece: &str) -> Option<String> {
    let spaced = piece.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// The decoded parameters of a query, so that every spelling of a name is recognised.
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
    fn parameters_are_decoded() {
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
    fn only_url_encoding_is_accepted() {
        assert_eq!(NameEncoding::requested(None).unwrap(), NameEncoding::Plain);
        assert_eq!(NameEncoding::requested(Some("url")).unwrap(), NameEncoding::Url);
        assert_eq!(NameEncoding::requested(Some("base64")).unwrap_err().code, "InvalidArgument");
    }

    #[test]
    fn characters_that_xml_cannot_represent_force_encoding() {
        let plain = NameEncoding::Plain;
        assert_eq!(plain.fit_for(["a", "b\n"].into_iter()), NameEncoding::Plain);
        assert_eq!(plain.fit_for(["a", "b\u{1}"].into_iter()), NameEncoding::Url);
    }
}
