//! Parses tags of headers and XML documents and checks S3's limits.

use s3o_model::object::Tags;
use s3s::dto::{Tag, TagSet};

use super::refusal::Refusal;
use super::url_encoding::decode_query_piece;

/// How many tags an object may have.
pub const OBJECT_TAGS_MAX: usize = 10;
/// How many tags a bucket may have.
pub const BUCKET_TAGS_MAX: usize = 50;
const KEY_CHARS_MAX: usize = 128;
const VALUE_CHARS_MAX: usize = 256;

/// Parses `x-amz-tagging`, a URL-encoded query.
pub fn from_header(header: &str) -> Result<Tags, Refusal> {
    let malformed = || Refusal::because("InvalidArgument", "The header 'x-amz-tagging' is not a URL-encoded query");
    let pairs = header.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode_query_piece(key)?, decode_query_piece(value)?))
    });
    let pairs: Option<Vec<_>> = pairs.collect();
    checked(pairs.ok_or_else(malformed)?, OBJECT_TAGS_MAX)
}

/// Parses the tags of a `Tagging` document.
pub fn from_xml(tag_set: TagSet, max: usize) -> Result<Tags, Refusal> {
    let pairs = tag_set.into_iter().map(|tag| match (tag.key, tag.value) {
        (Some(key), Some(value)) => Ok((key, value)),
        (Some(_) | None, Some(_) | None) => Err(Refusal::new("MalformedXML")),
    });
    checked(pairs.collect::<Result<Vec<_>, _>>()?, max)
}

/// Tags for a response.
pub fn to_xml(tags: &Tags) -> TagSet {
    tags.iter().map(|(key, value)| Tag { key: Some(key.clone()), value: Some(value.clone()) }).collect()
}

fn checked(pairs: Vec<(String, String)>, max: usize) -> Result<Tags, Refusal> {
    if pairs.len() > max {
        return Err(Refusal::because("InvalidTag", format!("There can be at most {max} tags")));
    }
    let mut tags = Tags::new();
    for (key, value) in pairs {
        check_lengths(&key, &value)?;
        if tags.insert(key, value).is_some() {
            return Err(Refusal::because("InvalidTag", "Cannot provide multiple Tags with the same key"));
        }
    }
    Ok(tags)
}

fn check_lengths(key: &str, value: &str) -> Result<(), Refusal> {
    if key.is_empty() || key.chars().count() > KEY_CHARS_MAX {
        return Err(Refusal::because("InvalidTag", "The TagKey you have provided is invalid"));
    }
    if value.chars().count() > VALUE_CHARS_MAX {
        return Err(Refusal::because("InvalidTag", "The TagValue you have provided is invalid"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{OBJECT_TAGS_MAX, from_header, from_xml, to_xml};
    use s3s::dto::Tag;

    #[test]
    fn tagging_header_is_a_query() {
        let tags = from_header("a=1&b=x%20y+z&c").unwrap();
        assert_eq!(tags["a"], "1");
        assert_eq!(tags["b"], "x y z");
        assert_eq!(tags["c"], "");
        assert!(from_header("").unwrap().is_empty());
    }

    #[test]
    fn tags_beyond_limits_and_duplicates_are_refused() {
        let eleven: Vec<_> = (0..11).map(|n| format!("k{n}=v")).collect();
        let long_key = format!("{}=v", "k".repeat(129));
        let long_value = format!("k={}", "v".repeat(257));
        for header in [eleven.join("&"), long_key, long_value, "a=1&a=2".to_owned(), "=1".to_owned()] {
            assert_eq!(from_header(&header).unwrap_err().code, "InvalidTag", "{header}");
        }
        assert_eq!(from_header("a=%FF").unwrap_err().code, "InvalidArgument");
    }

    #[test]
    fn tag_set_round_trips() {
        let tags = from_header("a=1&b=2").unwrap();
        assert_eq!(from_xml(to_xml(&tags), OBJECT_TAGS_MAX).unwrap(), tags);
        let nameless = vec![Tag { key: None, value: Some("v".into()) }];
        assert_eq!(from_xml(nameless, OBJECT_TAGS_MAX).unwrap_err().code, "MalformedXML");
    }
}
