//! Physical keys of object keys: safe on every store, unique, and reversible.

use s3o_model::names::{BackendName, BucketName, KEY_BYTES_MAX, ObjectKey};
use s3o_model::physical_key::{NameStyle, RESERVED_PREFIX, identifier, physical_key};
use uuid::Uuid;

use crate::mutate::{rng_of, tamper};

const ID: Uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

pub fn target(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    check_names(&text);
    let Ok(key) = text.parse::<ObjectKey>() else {
        assert!(text.is_empty() || text.len() > KEY_BYTES_MAX || text.contains('\0'), "refused {text:?}");
        return;
    };
    let mut changed = input.to_vec();
    tamper(&mut changed, &mut rng_of(input));
    let other = String::from_utf8_lossy(&changed).parse::<ObjectKey>().ok().filter(|other| *other != key);
    for style in [NameStyle::Exact, NameStyle::Folded] {
        let physical = named(&key, style);
        check_shape(&physical);
        if style == NameStyle::Folded {
            assert_eq!(physical, physical.to_lowercase(), "depends on case");
        } else if let Some(original) = unescape(&physical) {
            assert_eq!(original, key.as_str());
        }
        if let Some(other) = &other {
            assert_ne!(physical, named(other, style), "{key:?} and {other:?}");
        }
    }
}

/// Valid names keep their text.
fn check_names(text: &str) {
    if let Ok(bucket) = text.parse::<BucketName>() {
        assert_eq!(bucket.as_str(), text);
        assert!(!text.contains(['/', '_', '~', '%']) && !RESERVED_PREFIX.starts_with(text), "{text}");
    }
    if let Ok(backend) = text.parse::<BackendName>() {
        assert_eq!(backend.as_str(), text);
    }
    // Files on a backend may have any name.
    if let Some(id) = identifier(text) {
        assert!(text.to_lowercase().ends_with(&id.as_simple().to_string()), "{text} has {id}");
    }
}

fn named(key: &ObjectKey, style: NameStyle) -> String {
    let bucket: BucketName = "bucket".parse().expect("a name");
    physical_key(&bucket, key, ID, style)
}

fn check_shape(physical: &str) {
    assert!(physical.len() < 900, "{} bytes", physical.len());
    assert!(physical.starts_with("bucket/"));
    assert_eq!(identifier(physical), Some(ID));
    assert_eq!(physical.matches('~').count(), 1);
    for segment in physical.split('/') {
        assert!(!segment.is_empty() && segment != "." && segment != ".." && segment.len() <= 200, "{segment:?}");
        let dangerous = |c: char| c.is_control() || c.is_whitespace() || "%\\:*?\"<>|&#;$'`+".contains(c);
        assert!(!segment.contains(dangerous), "{segment:?}");
    }
}

/// The object key in a physical key; None if it was shortened.
fn unescape(physical: &str) -> Option<String> {
    let escaped = physical.strip_prefix("bucket/")?.rsplit_once('~')?.0;
    let segments: Option<Vec<Vec<u8>>> = escaped.split('/').map(unescape_segment).collect();
    Some(String::from_utf8(segments?.join(&b'/')).expect("escapes of UTF-8"))
}

fn unescape_segment(segment: &str) -> Option<Vec<u8>> {
    if segment == "=_" {
        return Some(Vec::new());
    }
    let mut bytes = Vec::new();
    let mut rest = segment;
    while let Some((plain, escape)) = rest.split_once('=') {
        bytes.extend_from_slice(plain.as_bytes());
        bytes.push(u8::from_str_radix(escape.get(..2)?, 16).ok()?);
        rest = &escape[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}
