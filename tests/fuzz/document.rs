//! Reads XML answers with a parser that the product does not use to write them.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

/// The texts of all elements with their names, in document order.
#[derive(Debug, Default)]
pub struct Document {
    pub root: String,
    texts: Vec<(String, String)>,
}

impl Document {
    /// Panics if the document is not well-formed XML 1.0.
    pub fn read(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).expect("a document is UTF-8");
        let forbidden = |c: char| (c < ' ' && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{fffe}' | '\u{ffff}');
        assert!(!text.contains(forbidden), "forbidden character in {text:?}");
        let mut reader = Reader::from_str(text);
        reader.config_mut().check_end_names = true;
        let mut open: Vec<(String, String)> = Vec::new();
        let mut document = Self::default();
        loop {
            match reader.read_event().unwrap_or_else(|error| panic!("{error} in {text:?}")) {
                Event::Eof => break,
                Event::Start(start) => open.push((start.local_name().as_ref().to_owned(), String::new())),
                Event::Empty(start) => {
                    document.close((start.local_name().as_ref().to_owned(), String::new()), open.is_empty());
                }
                Event::End(_) => {
                    let element = open.pop().expect("an open element");
                    document.close(element, open.is_empty());
                }
                Event::Text(piece) => push(&mut open, &piece),
                Event::CData(piece) => push(&mut open, &piece),
                Event::GeneralRef(reference) => {
                    let character = reference.resolve_char_ref().expect("a character");
                    let named = || resolve_predefined_entity(&reference).expect("a known entity").to_owned();
                    push(&mut open, &character.map_or_else(named, String::from));
                }
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
        assert!(open.is_empty() && !document.root.is_empty(), "the document is truncated: {text:?}");
        document
    }

    fn close(&mut self, (name, text): (String, String), is_root: bool) {
        if is_root {
            assert!(self.root.is_empty(), "two roots");
            self.root.clone_from(&name);
        }
        self.texts.push((name, text));
    }

    /// The texts of all elements of that name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.texts.iter().filter(move |(found, _)| found == name).map(|(_, text)| text.as_str())
    }

    /// The text of the element of that name; panics unless there is exactly one.
    pub fn only(&self, name: &str) -> &str {
        let found: Vec<&str> = self.texts.iter().filter(|(found, _)| found == name).map(|(_, text)| &**text).collect();
        assert_eq!(found.len(), 1, "{name} in {self:?}");
        found[0]
    }
}

fn push(open: &mut [(String, String)], piece: &str) {
    match open.last_mut() {
        Some((_, text)) => text.push_str(piece),
        None => assert!(piece.trim().is_empty(), "text outside of the root"),
    }
}

/// Escapes markup and white space as character references.
pub fn escaped(text: &str) -> String {
    let mut written = String::new();
    for character in text.chars() {
        match character {
            '&' | '<' | '>' | '\r' | '\n' | '\t' => written.extend(format!("&#{};", u32::from(character)).chars()),
            _ => written.push(character),
        }
    }
    written
}
