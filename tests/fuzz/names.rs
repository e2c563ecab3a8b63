//! Keys and tags in paths, queries, headers and documents: what the server returns equals what was sent.

use percent_encoding::percent_decode_str;
use s3o_model::names::ObjectKey;

use crate::document::{Document, escaped};
use crate::requests::Wire;
use crate::s3_server::{CheckedAnswer, S3Server};
use crate::sign;

pub fn target(server: &mut S3Server, input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(key) = text.parse::<ObjectKey>() else { return };
    let path = format!("/other/{}", sign::path(key.as_str()));
    ask(server, &format!("PUT {path}"), b"body");
    assert_eq!(ask(server, &format!("GET {path}"), b"").body, &b"body"[..]);
    check_listings(server, key.as_str());
    check_copy(server, &path);
    check_tags(server, &path, &text);
    check_upload(server, &path, key.as_str());
    check_delete(server, &path, key.as_str());
    server.renew();
}

fn ask(server: &mut S3Server, line: &str, body: &[u8]) -> CheckedAnswer {
    let answer = server.send(&Wire::signed(line, body));
    assert!(answer.status.is_success(), "{line}: {}", String::from_utf8_lossy(&answer.body));
    answer
}

/// A name from a listing, decoded.
fn decoded(document: &Document, name: &str) -> String {
    let text = document.only(name);
    if document.all("EncodingType").next() == Some("url") {
        percent_decode_str(text).decode_utf8().expect("UTF-8").into_owned()
    } else {
        text.to_owned()
    }
}

fn check_listings(server: &mut S3Server, key: &str) {
    for parameters in ["list-type=2", "list-type=2&encoding-type=url", "max-keys=1", "encoding-type=url"] {
        let document = ask(server, &format!("GET /other?{parameters}"), b"").document();
        assert_eq!(decoded(&document, "Key"), key, "{parameters}");
    }
    let whole = format!("GET /other?list-type=2&prefix={0}&delimiter={0}", sign::query(key));
    let document = ask(server, &whole, b"").document();
    assert_eq!(decoded(&document, "Key"), key);
    let last = key.chars().last().expect("keys are not empty").to_string();
    let grouped = ask(server, &format!("GET /other?list-type=2&delimiter={}", sign::query(&last)), b"").document();
    assert_eq!(grouped.all("Key").count(), 0);
    assert_eq!(grouped.only("KeyCount"), "1");
}

fn check_copy(server: &mut S3Server, path: &str) {
    let mut wire = Wire::plain("PUT /other/copied%0A", b"").expect("a request");
    wire.headers.insert("x-amz-copy-source", path.parse().expect("an escaped path"));
    sign::in_header(&mut wire, None);
    let answer = server.send(&wire);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(ask(server, "GET /other/copied%0A", b"").body, &b"body"[..]);
    ask(server, "DELETE /other/copied%0A", b"");
}

/// Whether XML 1.0 can represent this text.
fn fits_xml(text: &str) -> bool {
    !text.contains(|c: char| (c < ' ' && !matches!(c, '\t' | '\n' | '\r')) || matches!(c, '\u{fffe}' | '\u{ffff}'))
}

fn check_tags(server: &mut S3Server, path: &str, text: &str) {
    let value: String = text.chars().filter(|c| fits_xml(&c.to_string())).take(256).collect();
    let tags = format!("<Tagging><TagSet><Tag><Key>k</Key><Value>{}</Value></Tag></TagSet></Tagging>", escaped(&value));
    ask(server, &format!("PUT {path}?tagging"), tags.as_bytes());
    let document = ask(server, &format!("GET {path}?tagging"), b"").document();
    assert_eq!((document.only("Key"), document.only("Value")), ("k", value.as_str()));
    let mut wire = Wire::plain("PUT /other/tagged", b"").expect("a request");
    wire.headers.insert("x-amz-tagging", format!("k={}", sign::query(&value)).parse().expect("an escaped value"));
    sign::in_header(&mut wire, None);
    assert_eq!(server.send(&wire).status, 200);
    let document = ask(server, "GET /other/tagged?tagging", b"").document();
    assert_eq!((document.only("Key"), document.only("Value")), ("k", value.as_str()));
    ask(server, "DELETE /other/tagged", b"");
}

fn check_upload(server: &mut S3Server, path: &str, key: &str) {
    let created = ask(server, &format!("POST {path}?uploads"), b"").document();
    let upload = created.only("UploadId").to_owned();
    if fits_xml(key) {
        assert_eq!(created.only("Key"), key);
    }
    let listed = ask(server, "GET /other?uploads", b"").document();
    assert_eq!(decoded(&listed, "Key"), key);
    ask(server, &format!("DELETE {path}?uploadId={upload}"), b"");
}

fn check_delete(server: &mut S3Server, path: &str, key: &str) {
    if fits_xml(key) {
        let document = format!("<Delete><Object><Key>{}</Key></Object></Delete>", escaped(key));
        let mut wire = Wire::plain("POST /other?delete", document.as_bytes()).expect("a request");
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, document.as_bytes()).to_be_bytes();
        let sum = base64_simd::STANDARD.encode_to_string(&sum[4..]);
        wire.headers.insert("x-amz-checksum-crc32", sum.parse().expect("a header"));
        sign::in_header(&mut wire, None);
        let answer = server.send(&wire);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.document().only("Key"), key);
    } else {
        ask(server, &format!("DELETE {path}"), b"");
    }
    assert_eq!(server.send(&Wire::signed(&format!("GET {path}"), b"")).status, 404);
}
