//! Listing, checked: keys ascend strictly by their bytes and lie where they were asked for, or
//! the listing is worth nothing.

use http::Method;
use percent_encoding::percent_decode_str;
use s3o_model::clock::Timestamp;
use s3o_model::physical_key::RESERVED_PREFIX;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::S3;
use super::transport::{Request, unquote};
use super::xml::Element;
use crate::{Error, Listed, Page};

const PAGE_KEYS_MAX: usize = 1000;

impl S3 {
    pub(super) async fn list_objects(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let own_too = prefix.starts_with(RESERVED_PREFIX);
        let mut after = after.map(str::to_owned);
        loop {
            let mut page = self.list_page(prefix, after.as_deref(), limit).await?;
            let last = page.items.last().map(|item| item.key.clone());
            // Some stores begin a little before the start when it names no key.
            page.items.retain(|item| after.as_ref().is_none_or(|after| item.key > *after));
            let moved = !page.items.is_empty();
            page.items.retain(|item| own_too || !item.key.starts_with(RESERVED_PREFIX));
            if !page.items.is_empty() || !page.truncated {
                return Ok(page);
            }
            // All that came was ours. An empty page would give the caller nowhere to go on from.
            if !moved {
                return Err(Error::Unknown("the listing stands still".to_owned()));
            }
            after = last;
        }
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let max_keys = limit.clamp(1, PAGE_KEYS_MAX).to_string();
        let mut query =
            vec![("list-type", "2"), ("encoding-type", "url"), ("prefix", prefix), ("max-keys", max_keys.as_str())];
        if let Some(after) = after {
            query.push(("start-after", after));
        }
        let answer = self.transport.answer(Request::new(Method::GET, None, &query)).await;
        match answer.map_err(Error::from) {
            Ok(answer) => read_page(&Element::parse(&answer.body)?, prefix),
            Err(Error::NotFound) => Err(Error::Unknown("the listing was answered with a 404".to_owned())),
            Err(error) => Err(error),
        }
    }
}

fn read_page(root: &Element, prefix: &str) -> Result<Page, Error> {
    if root.name != "ListBucketResult" {
        return Err(Error::Unknown(format!("a listing was answered with {}", root.name)));
    }
    let truncated = match root.child_text("IsTruncated") {
        Some("true") => true,
        Some("false") => false,
        _ => return Err(Error::Unknown("the listing does not say whether it is whole".to_owned())),
    };
    let decoder = Decoder::of(root);
    let mut items: Vec<Listed> = Vec::new();
    for entry in root.all("Contents") {
        let listed = read_entry(entry, decoder)?;
        let ascends = items.last().is_none_or(|previous| listed.key > previous.key);
        if !listed.key.starts_with(prefix) || !ascends {
            return Err(Error::Unknown(format!("the listing is out of order at {:?}", listed.key)));
        }
        items.push(listed);
    }
    Ok(Page { items, truncated })
}

fn read_entry(entry: &Element, decoder: Decoder) -> Result<Listed, Error> {
    let size = entry.child_text("Size").and_then(|size| size.parse().ok());
    let (Some(key), Some(size_bytes)) = (entry.child_text("Key"), size) else {
        return Err(Error::Unknown("the listing has an entry without key or size".to_owned()));
    };
    Ok(Listed {
        key: decoder.decode(key)?,
        size_bytes,
        etag: entry.child_text("ETag").map(unquote).filter(|etag| !etag.is_empty()),
        modified: entry.child_text("LastModified").and_then(moment),
    })
}

fn moment(text: &str) -> Option<Timestamp> {
    let moment = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).ok().map(Timestamp::from_millis)
}

/// How keys are written in a listing: escaped if the listing says so, whatever was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decoder {
    escaped: bool,
}

impl Decoder {
    pub(super) fn of(root: &Element) -> Self {
        Self { escaped: root.child_text("EncodingType") == Some("url") }
    }

    pub(super) fn decode(self, text: &str) -> Result<String, Error> {
        if !self.escaped {
            return Ok(text.to_owned());
        }
        let spaced = text.replace('+', " ");
        let decoded = percent_decode_str(&spaced).decode_utf8();
        decoded.map(String::from).map_err(|_| Error::Unknown(format!("the listing has an unreadable key {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::{Timestamp, moment, read_page};
    use crate::s3::xml::Element;
    use crate::{Error, Page};

    fn page(keys: &[&str], truncated: &str) -> Result<Page, Error> {
        let contents: Vec<_> =
            keys.iter().map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>")).collect();
        let contents = contents.concat();
        let document =
            format!("<ListBucketResult><EncodingType>url</EncodingType>{truncated}{contents}</ListBucketResult>");
        read_page(&Element::parse(document.as_bytes()).expect("valid"), "b/")
    }

    const WHOLE: &str = "<IsTruncated>false</IsTruncated>";

    #[test]
    fn escaped_keys_read_back() {
        let page = page(&["b/a%3D+%C3%A9%2B"], WHOLE).expect("valid");
        assert_eq!(page.items[0].key, "b/a= é+");
    }

    #[test]
    fn a_listing_out_of_order_is_worth_nothing() {
        for keys in [["b/2", "b/1"], ["b/1", "b/1"], ["b/1", "c/1"]] {
            assert!(matches!(page(&keys, WHOLE), Err(Error::Unknown(_))), "{keys:?}");
        }
        assert!(page(&["b/1", "b/2"], WHOLE).is_ok());
    }

    #[test]
    fn a_listing_must_say_whether_it_is_whole() {
        assert!(page(&["b/1"], "").is_err());
    }

    #[test]
    fn moments_are_read() {
        assert_eq!(moment("2009-10-12T17:50:30.000Z").map(Timestamp::millis), Some(1_255_369_830_000));
    }
}
