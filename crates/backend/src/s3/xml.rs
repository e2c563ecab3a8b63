//! XML of the S3 protocol: responses are parsed into a small tree, requests are formatted by hand.

use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::{BytesRef, Event};

use crate::Error;

/// Deeper than any S3 response.
const DEPTH_MAX: usize = 16;

/// An element: name without namespace, own text, child elements.
#[derive(Debug, Default)]
pub(super) struct XmlElement {
    pub(super) name: String,
    pub(super) text: String,
    children: Vec<XmlElement>,
}

impl XmlElement {
    pub(super) fn parse(document: &[u8]) -> Result<Self, Error> {
        let text = std::str::from_utf8(document).map_err(|_| unreadable("not UTF-8"))?;
        let mut reader = Reader::from_str(text);
        let mut open = vec![Self::default()];
        loop {
            let event = reader.read_event().map_err(|error| unreadable(&error.to_string()))?;
            match event {
                Event::Eof => break,
                Event::Start(start) if open.len() <= DEPTH_MAX => open.push(Self::named(start.local_name().as_ref())),
                Event::Start(_) => return Err(unreadable("nested too deeply")),
                Event::Empty(start) => innermost(&mut open)?.children.push(Self::named(start.local_name().as_ref())),
                Event::End(_) => close(&mut open)?,
                Event::Text(text) => innermost(&mut open)?.text.push_str(&text),
                Event::CData(text) => innermost(&mut open)?.text.push_str(&text),
                Event::GeneralRef(reference) => innermost(&mut open)?.text.push_str(&resolve(&reference)?),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
        let root = if open.len() == 1 { open.pop().and_then(|mut document| document.children.pop()) } else { None };
        root.ok_or_else(|| unreadable("unexpected end"))
    }

    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    pub(super) fn all<'e>(&'e self, name: &'e str) -> impl Iterator<Item = &'e XmlElement> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of the first child with this name.
    pub(super) fn child_text(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|child| child.name == name).map(|child| child.text.as_str())
    }
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, Error> {
    let character = reference.resolve_char_ref().map_err(|error| unreadable(&error.to_string()))?;
    let named = || resolve_predefined_entity(reference).map(str::to_owned);
    character.map(String::from).or_else(named).ok_or_else(|| unreadable("unknown entity"))
}

fn close(open: &mut Vec<XmlElement>) -> Result<(), Error> {
    let closed = open.pop().ok_or_else(|| unreadable("unexpected closing tag"))?;
    innermost(open)?.children.push(closed);
    Ok(())
}

fn innermost(open: &mut [XmlElement]) -> Result<&mut XmlElement, Error> {
    open.last_mut().ok_or_else(|| unreadable("unexpected closing tag"))
}

fn unreadable(why: &str) -> Error {
    Error::Unknown(format!("unreadable response: {why}"))
}

/// Formats an element with this text, escaped.
pub(super) fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape(text))
}

#[cfg(test)]
mod tests {
    use super::{XmlElement, element};

    #[test]
    fn elements_are_read_in_any_order_and_namespace() {
        let document = concat!(
            r#"<?xml version="1.0"?><r:Result xmlns:r="urn:x"><Error><Key>b</Key></Error>"#,
            "<Key>a&amp;&#x41;&lt;</Key><Error/></r:Result>"
        );
        let root = XmlElement::parse(document.as_bytes()).expect("valid");
        assert_eq!(root.name, "Result");
        assert_eq!(root.child_text("Key"), Some("a&A<"));
        assert_eq!(root.all("Error").count(), 2);
    }

    #[test]
    fn incomplete_documents_are_errors() {
        for bad in ["", "<a>", "<a><b></a>", "</a>", "text", "<a>&unknown;</a>"] {
            assert!(XmlElement::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(element("Key", "a&<b>"), "<Key>a&amp;&lt;b&gt;</Key>");
    }
}
