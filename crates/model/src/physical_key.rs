//! Physical keys: `<bucket>/<escaped key>~<uuid>`, readable, unique, written at most once.
//!
//! Escaping is injective, uses no percent sign, and leaves no segment that a file system or an S3
//! service interprets: none empty, none `.` or `..`, none over 200 bytes. `~` appears only before
//! the identifier, so no object key can equal the physical key of another one.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::etag::hex;
use crate::names::{BucketName, ObjectKey};

/// Prefix of s3o's own objects on every backend; no bucket name starts with a dot.
pub const RESERVED_PREFIX: &str = ".s3o/";

const SEGMENT_BYTES_MAX: usize = 200;
const TOTAL_BYTES_MAX: usize = 900;
/// `~` and 32 hexadecimal digits.
const SUFFIX_BYTES: usize = 33;
/// Readable bytes of a segment that is too long, before its hash.
const READABLE_BYTES: usize = 96;

/// How a backend treats names, as probed at attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameStyle {
    /// Names are stored as given.
    #[default]
    Exact,
    /// The backend folds case or Unicode forms: names must not depend on either.
    Folded,
}

/// The physical key of one attempt to write one copy.
#[must_use]
pub fn physical_key(bucket: &BucketName, key: &ObjectKey, id: Uuid, style: NameStyle) -> String {
    let readable = match style {
        NameStyle::Exact => escape_key(key.as_str()),
        NameStyle::Folded => hashed_key(key.as_str()),
    };
    let fits = bucket.as_str().len() + 1 + readable.len() + SUFFIX_BYTES < TOTAL_BYTES_MAX;
    let name = if fits { readable } else { hashed_key(key.as_str()) };
    format!("{bucket}/{name}~{}", id.as_simple())
}

/// The physical key of another copy of the bytes at `source`: in the same folder, with its own identifier.
#[must_use]
pub fn replica_key(source: &str, id: Uuid, style: NameStyle) -> String {
    let name = source.rsplit_once('~').map_or(source, |(name, _)| name);
    let name = match (style, name.split_once('/')) {
        (NameStyle::Folded, Some((bucket, key))) if !key.starts_with("=k") => format!("{bucket}/{}", hashed_key(key)),
        (NameStyle::Folded | NameStyle::Exact, _) => name.to_owned(),
    };
    format!("{name}~{}", id.as_simple())
}

/// The identifier at the end of a physical key.
#[must_use]
pub fn identifier(physical_key: &str) -> Option<Uuid> {
    let (_, id) = physical_key.rsplit_once('~')?;
    (id.len() == 32).then(|| Uuid::try_parse(id).ok()).flatten()
}

/// A name from the key's hash, for folding backends and for keys that are too long.
fn hashed_key(key: &str) -> String {
    format!("=k{}", hex(&Sha256::digest(key.as_bytes())))
}

fn escape_key(key: &str) -> String {
    let last = key.split('/').count() - 1;
    let segments = key.split('/').enumerate().map(|(position, segment)| {
        let reserved = if position == last { SUFFIX_BYTES } else { 0 };
        escape_segment(segment, SEGMENT_BYTES_MAX - reserved)
    });
    segments.collect::<Vec<_>>().join("/")
}

fn escape_segment(segment: &str, bytes_max: usize) -> String {
    let escaped = match segment {
        "" => "=_".to_owned(),
        "." => "=2E".to_owned(),
        ".." => "=2E.".to_owned(),
        other => other.chars().fold(String::with_capacity(other.len()), push_escaped),
    };
    if escaped.len() <= bytes_max { escaped } else { shorten(segment, &escaped) }
}

fn push_escaped(mut text: String, character: char) -> String {
    let plain = character.is_alphanumeric() || matches!(character, '-' | '_' | '.' | '!' | '(' | ')' | '@' | ',');
    if plain {
        text.push(character);
    } else {
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            write!(text, "={byte:02X}").expect("writing to a string does not fail");
        }
    }
    text
}

/// Keeps a readable start and appends a hash of the whole segment; `=h` is no escape, so a shortened
/// segment never equals an escaped one.
fn shorten(segment: &str, escaped: &str) -> String {
    let mut cut = READABLE_BYTES;
    while !escaped.is_char_boundary(cut) {
        cut -= 1;
    }
    let readable = escaped[..cut].trim_end_matches(|c: char| c == '=' || c.is_ascii_hexdigit());
    format!("{readable}=h{}", &hex(&Sha256::digest(segment.as_bytes()))[..48])
}

#[cfg(test)]
mod tests {
    use super::{NameStyle, SEGMENT_BYTES_MAX, TOTAL_BYTES_MAX, escape_key, identifier, physical_key, replica_key};
    use crate::names::{BucketName, ObjectKey};
    use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_ne, proptest};
    use uuid::Uuid;

    fn bucket() -> BucketName {
        "photos".parse().expect("valid")
    }

    fn key(text: &str) -> ObjectKey {
        text.parse().expect("valid")
    }

    #[test]
    fn copy_is_stored_beside_its_source_under_a_new_identifier() {
        let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let source = physical_key(&bucket(), &key("2026/Cat.jpg"), first, NameStyle::Exact);
        let copy = replica_key(&source, second, NameStyle::Exact);
        assert_eq!(copy, physical_key(&bucket(), &key("2026/Cat.jpg"), second, NameStyle::Exact));
        let folded = replica_key(&source, second, NameStyle::Folded);
        assert!(folded.starts_with("photos/=k") && identifier(&folded) == Some(second));
        assert!(folded.chars().all(|character| !character.is_ascii_uppercase()));
        assert_eq!(replica_key(&folded, first, NameStyle::Folded).len(), folded.len());
    }

    #[test]
    fn plain_keys_stay_readable() {
        let id = Uuid::from_u128(1);
        assert_eq!(
            physical_key(&bucket(), &key("2026/cat.jpg"), id, NameStyle::Exact),
            "photos/2026/cat.jpg~00000000000000000000000000000001"
        );
    }

    #[test]
    fn special_segments_are_escaped() {
        assert_eq!(escape_key("a//b"), "a/=_/b");
        assert_eq!(escape_key("./x"), "=2E/x");
        assert_eq!(escape_key("../x"), "=2E./x");
        assert_eq!(escape_key("/x"), "=_/x");
        assert_eq!(escape_key("x/"), "x/=_");
        assert_eq!(escape_key("a~b=c%d"), "a=7Eb=3Dc=25d");
        assert_eq!(escape_key("tab\there"), "tab=09here");
    }

    #[test]
    fn identifier_is_read_from_the_physical_key() {
        let id = Uuid::from_u128(42);
        let physical = physical_key(&bucket(), &key("a~b"), id, NameStyle::Exact);
        assert_eq!(identifier(&physical), Some(id));
        assert_eq!(identifier("photos/a"), None);
        assert_eq!(identifier("photos/a~b"), None);
    }

    #[test]
    fn folded_names_do_not_depend_on_case() {
        let physical = physical_key(&bucket(), &key("README"), Uuid::nil(), NameStyle::Folded);
        assert_eq!(physical, physical.to_lowercase());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn every_key_gets_a_safe_name(text in any::<String>()) {
            let Ok(key) = text.parse::<ObjectKey>() else { return Ok(()) };
            for style in [NameStyle::Exact, NameStyle::Folded] {
                let physical = physical_key(&bucket(), &key, Uuid::from_u128(9), style);
                prop_assert!(physical.len() < TOTAL_BYTES_MAX);
                prop_assert!(!physical.contains('%'));
                for segment in physical.split('/') {
                    prop_assert!(!segment.is_empty() && segment != "." && segment != "..");
                    prop_assert!(segment.len() <= SEGMENT_BYTES_MAX);
                    prop_assert!(!segment.chars().any(char::is_control));
                }
            }
        }

        #[test]
        fn different_keys_get_different_names(a in "[a-cA~=./ %é_2Eh-]{1,6}", b in "[a-cA~=./ %é_2Eh-]{1,6}") {
            if a != b {
                prop_assert_ne!(escape_key(&a), escape_key(&b));
            }
        }

        #[test]
        fn different_long_segments_get_different_names(a in "[a-f=/ ]{150,400}", b in "[a-f=/ ]{150,400}") {
            if a != b {
                prop_assert_ne!(escape_key(&a), escape_key(&b));
            }
        }
    }
}
