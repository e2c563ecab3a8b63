//! What the documents of requests may be made of.
//!
//! The protocol library overlooks what it does not expect: sections of character data, text beside elements, attributes,
//! and elements beside those of a list. A prefix that is overlooked means the whole bucket, so such documents are refused
//! before anybody acts on them.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// What an element that means something here may hold; other elements are the library's business.
const HOLDS: [(&str, &[&str]); 11] = [
    ("LifecycleConfiguration", &["Rule"]),
    (
        "Rule",
        &[
            "ID",
            "Prefix",
            "Filter",
            "Status",
            "Expiration",
            "Transition",
            "NoncurrentVersionExpiration",
            "NoncurrentVersionTransition",
            "AbortIncompleteMultipartUpload",
        ],
    ),
    ("Filter", &["Prefix", "Tag", "ObjectSizeGreaterThan", "ObjectSizeLessThan", "And"]),
    ("And", &["Prefix", "Tag", "ObjectSizeGreaterThan", "ObjectSizeLessThan"]),
    ("Expiration", &["Date", "Days", "ExpiredObjectDeleteMarker"]),
    ("AbortIncompleteMultipartUpload", &["DaysAfterInitiation"]),
    ("Tagging", &["TagSet"]),
    ("TagSet", &["Tag"]),
    ("Tag", &["Key", "Value"]),
    ("Delete", &["Object", "Quiet"]),
    ("CompleteMultipartUpload", &["Part"]),
];

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// An element that has begun and not ended.
struct Open {
    name: String,
    /// Whether it holds an element.
    holds_elements: bool,
    /// Whether it holds text that says something.
    holds_text: bool,
}

/// Whether every part of a document is one that will be read. What is no XML at all is left to whoever reads it.
pub fn is_read_in_full(document: &[u8]) -> bool {
    let text = document.strip_prefix(BYTE_ORDER_MARK).unwrap_or(document);
    !text.contains(&b'<') || holds_what_it_may(text)
}

fn holds_what_it_may(document: &[u8]) -> bool {
    let mut reader = Reader::from_reader(document);
    let mut open: Vec<Open> = Vec::new();
    let mut ended = false;
    loop {
        let fits = match reader.read_event() {
            Ok(Event::Start(_) | Event::Empty(_)) if ended => false,
            Ok(Event::Eof) => return open.is_empty(),
            Ok(Event::Start(element)) => {
                let fits = may_begin(open.last_mut(), &element);
                open.push(Open { name: element.name().as_ref().to_owned(), holds_elements: false, holds_text: false });
                fits
            }
            Ok(Event::Empty(element)) => {
                ended = open.is_empty();
                may_begin(open.last_mut(), &element)
            }
            Ok(Event::End(_)) => {
                open.pop();
                ended |= open.is_empty();
                true
            }
            Ok(Event::Text(text)) => is_blank(&text) || may_hold_text(open.last_mut()),
            Ok(Event::GeneralRef(_)) => may_hold_text(open.last_mut()),
            Ok(Event::CData(_) | Event::DocType(_)) | Err(_) => false,
            Ok(Event::Comment(_) | Event::Decl(_) | Event::PI(_)) => true,
        };
        if !fits {
            return false;
        }
    }
}

fn is_blank(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_whitespace())
}

fn may_begin(parent: Option<&mut Open>, element: &BytesStart<'_>) -> bool {
    let belongs = parent.is_none_or(|parent| {
        parent.holds_elements = true;
        !parent.holds_text && children(&parent.name).is_none_or(|names| names.iter().any(|name| is(element, name)))
    });
    belongs && element.attributes().all(|attribute| attribute.is_ok_and(|attribute| is_of_xml(attribute.key.as_ref())))
}

fn is(element: &BytesStart<'_>, name: &str) -> bool {
    element.name().as_ref() == name
}

/// Attributes say which language a document is written in, and nothing else.
fn is_of_xml(attribute: &str) -> bool {
    attribute == "xmlns" || ["xmlns:", "xsi:", "xml:"].iter().any(|prefix| attribute.starts_with(prefix))
}

fn may_hold_text(element: Option<&mut Open>) -> bool {
    element.is_some_and(|element| {
        element.holds_text = true;
        !element.holds_elements && children(&element.name).is_none()
    })
}

fn children(name: &str) -> Option<&'static [&'static str]> {
    HOLDS.iter().find(|(container, _)| *container == name).map(|(_, children)| *children)
}

#[cfg(test)]
mod tests {
    use super::is_read_in_full;

    fn rule(inside: &str) -> String {
        format!("<LifecycleConfiguration><Rule>{inside}<Status>Enabled</Status></Rule></LifecycleConfiguration>")
    }

    #[track_caller]
    fn refused(document: &str) {
        assert!(!is_read_in_full(document.as_bytes()), "{document}");
    }

    #[track_caller]
    fn taken(document: &str) {
        assert!(is_read_in_full(document.as_bytes()), "{document}");
    }

    #[test]
    fn plain_documents_are_taken() {
        taken(&rule(
            "<ID>a</ID>\n  <Filter><And><Prefix>a&amp;b</Prefix><Tag><Key>k</Key><Value/></Tag></And></Filter>",
        ));
        taken(&rule("<Filter/>"));
        taken(&rule("<Prefix></Prefix><!-- all of it --><Expiration><Days>1</Days></Expiration>"));
        taken(
            "<?xml version=\"1.0\"?><Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>\
             <Object><Key> a &#13;</Key><VersionId>null</VersionId></Object></Delete>\n",
        );
        taken(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag></Part></CompleteMultipartUpload>",
        );
        taken("<AccessControlPolicy><Grantee xsi:type=\"Group\"><URI>x</URI></Grantee></AccessControlPolicy>");
    }

    #[test]
    fn what_is_no_document_is_left_to_its_reader() {
        for other in ["", "  ", "{\"Version\": \"2012-10-17\"}"] {
            taken(other);
        }
        for cut in ["<Delete><Object>", "<a></b>", "<a", "\u{feff} <a>"] {
            refused(cut);
        }
    }

    #[test]
    fn character_data_is_never_overlooked() {
        refused(&rule("<Prefix><![CDATA[tmp/]]></Prefix>"));
        refused(&rule("<Filter><Prefix>tm<![CDATA[p/]]></Prefix></Filter>"));
        refused("<Delete><Object><Key>tmp/a<![CDATA[-not-this-one]]></Key></Object></Delete>");
        refused("<Tagging><TagSet><Tag><Key>k</Key><Value>a<![CDATA[b]]></Value></Tag></TagSet></Tagging>");
        refused("<!DOCTYPE a [<!ENTITY b \"c\">]><Delete/>");
    }

    #[test]
    fn text_and_attributes_where_elements_belong_are_never_overlooked() {
        refused(&rule("<Filter>tmp/</Filter>"));
        refused(&rule("<Filter>&amp;</Filter>"));
        refused(&rule("<Filter Prefix='tmp/'/>"));
        refused(&rule("only these <Prefix>tmp/</Prefix>"));
        refused(&rule("<Prefix>tmp/<Deeper/></Prefix>"));
        refused(&rule("<Prefix><Deeper/>tmp/</Prefix>"));
        refused("<Delete>all<Object><Key>a</Key></Object></Delete>");
        refused("text<Delete/>");
        refused("<Delete/>text");
        refused("<Delete/><Delete/>");
    }

    #[test]
    fn elements_that_do_not_belong_are_never_overlooked() {
        let beside = |element: &str| {
            rule("").replace("</LifecycleConfiguration>", &format!("{element}</LifecycleConfiguration>"))
        };
        for element in ["<rule/>", "<Rules/>", "<Transition/>", "<Status>Disabled</Status>", "<s3:Rule/>"] {
            refused(&beside(element));
        }
        taken(&beside("<Rule/>"));
        refused(&rule("<Filter><prefix>tmp/</prefix></Filter>"));
        refused("<Tagging><TagSet><Tags/></TagSet></Tagging>");
        refused("<Delete><object><Key>a</Key></object></Delete>");
        refused("<CompleteMultipartUpload><part/></CompleteMultipartUpload>");
    }
}
