//! Error documents: always with `Code`, `Message`, `Resource` and `RequestId`.

use std::fmt::Write as _;

use crate::s3::refusal::default_answer;

/// The code and the message of an error document of the protocol library.
pub fn read(xml: &str) -> Option<(String, Option<String>)> {
    let code = element(xml, "Code")?;
    Some((code, element(xml, "Message").filter(|message| !message.is_empty())))
}

/// An error document. `region` is set if the request was signed for another region.
pub fn write((code, message): (&str, Option<&str>), region: Option<&str>, resource: &str, request_id: &str) -> String {
    let message = message.or_else(|| default_answer(code).map(|(_, message)| message)).unwrap_or(code);
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error>");
    let always = [("Code", code), ("Message", message), ("Resource", resource), ("RequestId", request_id)];
    for (name, text) in always.into_iter().chain(region.map(|region| ("Region", region))) {
        write!(xml, "<{name}>{}</{name}>", escape(text)).expect("writing to a string does not fail");
    }
    xml.push_str("</Error>");
    xml
}

fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(unescape(text))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn unescape(text: &str) -> String {
    let named = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
    named.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::{read, write};

    #[test]
    fn every_error_has_its_four_elements() {
        let xml = write(("NoSuchKey", None), None, "/b/<k>", "ID");
        for part in [
            "<Code>NoSuchKey</Code>",
            "<Message>The specified key does not exist.</Message>",
            "<Resource>/b/&lt;k&gt;</Resource>",
            "<RequestId>ID</RequestId>",
        ] {
            assert!(xml.contains(part), "{xml}");
        }
    }

    #[test]
    fn documents_read_back() {
        let xml = write(("InvalidRequest", Some("a < b & \"c\"")), Some("r"), "/", "ID");
        assert!(xml.contains("<Region>r</Region>"), "{xml}");
        assert_eq!(read(&xml), Some(("InvalidRequest".into(), Some("a < b & \"c\"".into()))));
        assert_eq!(read("<Error><Code>X</Code></Error>"), Some(("X".into(), None)));
        assert_eq!(read("<ListBucketResult/>"), None);
    }
}
