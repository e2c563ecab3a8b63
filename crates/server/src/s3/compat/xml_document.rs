//! Refuses XML documents that the protocol library would read only in part.
//!
//! The library skips CDATA sections, text beside elements, attributes and unexpected elements. A lifecycle rule whose
//! prefix is skipped applies to the whole bucket, so such documents are refused before they take effect.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// The child elements that each known element may have; other elements are not checked.
const CHILDREN: [(&str, &[&str]); 11] = [
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

/// An element whose end tag was not read yet.
struct OpenElement {
    name: String,
    has_elements: bool,
    /// Text other than whitespace.
    has_text: bool,
}

/// True if the library reads every part of the document, or the body is not XML: the library refuses that itself.
pub fn is_read_in_full(document: &[u8]) -> bool {
    let text = document.strip_prefix(BYTE_ORDER_MARK).unwrap_or(document);
    !text.contains(&b'<') || has_only_known_parts(text)
}

fn has_only_known_parts(document: &[u8]) -> bool {
    let mut reader = Reader::from_reader(document);
    let mut open: Vec<OpenElement> = Vec::new();
    let mut ended = false;
    loop {
        let fits = match reader.read_event() {
            Ok(Event::Start(_) | Event::Empty(_)) if ended => false,
            Ok(Event::Eof) => return open.is_empty(),
            Ok(Event::Start(element)) => {
                let fits = may_begin(open.last_mut(), &element);
                open.push(OpenElement {
                    name: element.name().as_ref().to_owned(),
                    has_elements: false,
                    has_text: false,
                });
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
            Ok(Event::Text(text)) => is_blank(&text) || may_have_text(open.last_mut()),
            Ok(Event::GeneralRef(_)) => may_have_text(open.last_mut()),
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

fn may_begin(parent: Option<&mut OpenElement>, element: &BytesStart<'_>) -> bool {
    let belongs = parent.is_none_or(|parent| {
        parent.has_elements = true;
        !parent.has_text && children(&parent.name).is_none_or(|names| names.iter().any(|name| is(element, name)))
    });
    belongs && element.attributes().all(|attribute| attribute.is_ok_and(|attribute| is_of_xml(attribute.key.as_ref())))
}

fn is(element: &BytesStart<'_>, name: &str) -> bool {
    element.name().as_ref() == name
}

/// Only namespace and language attributes are allowed.
fn is_of_xml(attribute: &str) -> bool {
    attribute == "xmlns" || ["xmlns:", "xsi:", "xml:"].iter().any(|prefix| attribute.starts_with(prefix))
}

fn may_have_text(element: Option<&mut OpenElement>) -> bool {
    element.is_some_and(|element| {
        element.has_text = true;
        !element.has_elements && children(&element.name).is_none()
    })
}

fn children(name: &str) -> Option<&'static [&'static str]> {
    CHILDREN.iter().find(|(container, _)| *container == name).map(|(_, children)| *children)
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
    fn accepted(document: &str) {
        assert!(is_read_in_full(document.as_bytes()), "{document}");
    }

    #[test]
    fn known_documents_are_accepted() {
        accepted(&rule(
            "<ID>a</ID>\n  <Filter><And><Prefix>a&amp;b</Prefix><Tag><Key>k</Key><Value/></Tag></And></Filter>",
        ));
        accepted(&rule("<Filter/>"));
        accepted(&rule("<Prefix></Prefix><!-- all of it --><Expiration><Days>1</Days></Expiration>"));
        accepted(
            "<?xml version=\"1.0\"?><Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>\
             <Object><Key> a &#13;</Key><VersionId>null</VersionId></Object></Delete>\n",
        );
        accepted(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag></Part>\
             </CompleteMultipartUpload>",
        );
        accepted("<AccessControlPolicy><Grantee xsi:type=\"Group\"><URI>x</URI></Grantee></AccessControlPolicy>");
    }

    #[test]
    fn bodies_that_are_not_xml_are_left_to_the_library() {
        for other in ["", "  ", "{\"Version\": \"2012-10-17\"}"] {
            accepted(other);
        }
        for cut in ["<Delete><Object>", "<a></b>", "<a", "\u{feff} <a>"] {
            refused(cut);
        }
    }

    #[test]
    fn cdata_is_refused() {
        refused(&rule("<Prefix><![CDATA[tmp/]]></Prefix>"));
        refused(&rule("<Filter><Prefix>tm<![CDATA[p/]]></Prefix></Filter>"));
        refused("<Delete><Object><Key>tmp/a<![CDATA[-not-this-one]]></Key></Object></Delete>");
        refused("<Tagging><TagSet><Tag><Key>k</Key><Value>a<![CDATA[b]]></Value></Tag></TagSet></Tagging>");
        refused("<!DOCTYPE a [<!ENTITY b \"c\">]><Delete/>");
    }

    #[test]
    fn unexpected_text_and_attributes_are_refused() {
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
    fn unexpected_elements_are_refused() {
        let beside = |element: &str| {
            rule("").replace("</LifecycleConfiguration>", &format!("{element}</LifecycleConfiguration>"))
        };
        for element in ["<rule/>", "<Rules/>", "<Transition/>", "<Status>Disabled</Status>", "<s3:Rule/>"] {
            refused(&beside(element));
        }
        accepted(&beside("<Rule/>"));
        refused(&rule("<Filter><prefix>tmp/</prefix></Filter>"));
        refused("<Tagging><TagSet><Tags/></TagSet></Tagging>");
        refused("<Delete><object><Key>a</Key></object></Delete>");
        refused("<CompleteMultipartUpload><part/></CompleteMultipartUpload>");
    }
}
