//! Listing with checks: keys ascend strictly in byte order and have the requested prefix.
//!
//! Some stores keep keys in folders and sort folders by their bare names. The client probes that
//! before the first page, and lists such a store folder by folder.

use percent_encoding::percent_decode_str;
use s3o_model::clock::Timestamp;
use s3o_model::physical_key::RESERVED_PREFIX;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::S3;
use super::transport::unquote;
use super::xml::XmlElement;
use crate::{Error, Listed, Page};

pub(super) const PAGE_KEYS_MAX: usize = 1000;

/// The order in which a store lists its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListOrder {
    /// By the bytes of the whole key.
    Bytes,
    /// Folder by folder, each in the order of its bare names.
    Folders,
}

impl S3 {
    pub(super) async fn list_objects(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        match self.known_order().await? {
            ListOrder::Bytes => self.list_flat(prefix, after, limit).await,
            ListOrder::Folders => self.walk_objects(prefix, after, limit).await,
        }
    }

    /// The order must be known before the first page: a listing in the wrong order has omitted keys before a page shows
    /// it.
    pub(super) async fn known_order(&self) -> Result<ListOrder, Error> {
        match self.order() {
            Some(order) => Ok(order),
            None => self.probe_order().await,
        }
    }

    async fn list_flat(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let includes_own = prefix.starts_with(RESERVED_PREFIX);
        let mut after = after.map(str::to_owned);
        loop {
            let ListedPage::Ordered(mut page) = self.list_page(prefix, after.as_deref(), limit).await? else {
                self.set_order(ListOrder::Folders);
                return Err(Error::Unknown("the listing is out of order, restart it from the beginning".to_owned()));
            };
            let last = page.items.last().map(|item| item.key.clone());
            page.items.retain(|item| includes_own || !item.key.starts_with(RESERVED_PREFIX));
            if !page.items.is_empty() || !page.truncated {
                return Ok(page);
            }
            // The page has only keys of s3o's own. An empty page would give the caller no key to continue from.
            after = Some(last.ok_or_else(|| Error::Unknown("an empty page is marked as truncated".to_owned()))?);
        }
    }

    /// The order in which the store lists a folder that holds `a/b` and `a-b`.
    pub(super) async fn order_in(&self, folder: &str) -> Result<ListOrder, Error> {
        let order = match self.list_page(folder, None, PAGE_KEYS_MAX).await? {
            ListedPage::Ordered(page) if page.items.len() == 2 => ListOrder::Bytes,
            ListedPage::Ordered(_) => {
                return Err(Error::Unknown("the listing does not show the two probe objects".to_owned()));
            }
            ListedPage::OutOfOrder => ListOrder::Folders,
        };
        self.set_order(order);
        Ok(order)
    }

    fn order(&self) -> Option<ListOrder> {
        *self.order.lock()
    }

    pub(super) fn set_order(&self, order: ListOrder) {
        *self.order.lock() = Some(order);
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<ListedPage, Error> {
        let max_keys = limit.clamp(1, PAGE_KEYS_MAX).to_string();
        let mut query =
            vec![("list-type", "2"), ("encoding-type", "url"), ("prefix", prefix), ("max-keys", max_keys.as_str())];
        if let Some(after) = after {
            query.push(("start-after", after));
        }
        read_page(&self.transport.listing(&query).await?, prefix, after)
    }
}

#[derive(Debug)]
enum ListedPage {
    Ordered(Page),
    OutOfOrder,
}

fn read_page(root: &XmlElement, prefix: &str, after: Option<&str>) -> Result<ListedPage, Error> {
    let truncated = is_truncated(root)?;
    let decoder = KeyDecoder::of(root);
    let mut items: Vec<Listed> = Vec::new();
    for entry in root.all("Contents") {
        let listed = read_entry(entry, decoder)?;
        if !listed.key.starts_with(prefix) {
            return Err(Error::Unknown(format!(
                "the listing has the key {:?}, which does not have the requested prefix",
                listed.key
            )));
        }
        let previous = items.last().map(|item| item.key.as_str()).or(after);
        if previous.is_some_and(|previous| listed.key.as_str() <= previous) {
            return Ok(ListedPage::OutOfOrder);
        }
        items.push(listed);
    }
    Ok(ListedPage::Ordered(Page { items, truncated }))
}

/// True if more pages follow; a listing without `IsTruncated` is an error.
pub(super) fn is_truncated(root: &XmlElement) -> Result<bool, Error> {
    if root.name != "ListBucketResult" {
        return Err(Error::Unknown(format!("the listing returned <{}>", root.name)));
    }
    match root.child_text("IsTruncated") {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        _ => Err(Error::Unknown("the listing has no valid IsTruncated".to_owned())),
    }
}

pub(super) fn read_entry(entry: &XmlElement, decoder: KeyDecoder) -> Result<Listed, Error> {
    let size = entry.child_text("Size").and_then(|size| size.parse().ok());
    let (Some(key), Some(size_bytes)) = (entry.child_text("Key"), size) else {
        return Err(Error::Unknown("the listing has an entry without key or size".to_owned()));
    };
    Ok(Listed {
        key: decoder.decode(key)?,
        size_bytes,
        etag: entry.child_text("ETag").map(unquote).filter(|etag| !etag.is_empty()),
        modified: entry.child_text("LastModified").and_then(parse_time),
        file: None,
    })
}

pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok().map(Timestamp::from_millis)
}

/// Decodes keys of a listing: they are escaped only if the response says so, regardless of the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyDecoder {
    escaped: bool,
}

impl KeyDecoder {
    pub(super) fn of(root: &XmlElement) -> Self {
        Self { escaped: root.child_text("EncodingType") == Some("url") }
    }

    pub(super) fn decode(self, text: &str) -> Result<String, Error> {
        if !self.escaped {
            return Ok(text.to_owned());
        }
        let spaced = text.replace('+', " ");
        let decoded = percent_decode_str(&spaced).decode_utf8();
        decoded
            .map(String::from)
            .map_err(|_| Error::Unknown(format!("the key {text:?} in the listing is not percent-encoded UTF-8")))
    }
}

#[cfg(test)]
mod tests {
    use super::{ListedPage, Timestamp, parse_time, read_page};
    use crate::Error;
    use crate::s3::xml::XmlElement;

    fn page(keys: &[&str], truncated: &str, after: Option<&str>) -> Result<ListedPage, Error> {
        let contents: Vec<_> =
            keys.iter().map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>")).collect();
        let contents = contents.concat();
        let document =
            format!("<ListBucketResult><EncodingType>url</EncodingType>{truncated}{contents}</ListBucketResult>");
        read_page(&XmlElement::parse(document.as_bytes()).expect("valid"), "b/", after)
    }

    const WHOLE: &str = "<IsTruncated>false</IsTruncated>";

    #[test]
    fn escaped_keys_are_decoded() {
        let Ok(ListedPage::Ordered(page)) = page(&["b/a%3D+%C3%A9%2B"], WHOLE, None) else { panic!("a page") };
        assert_eq!(page.items[0].key, "b/a= é+");
    }

    #[test]
    fn out_of_order_listing_is_detected_also_at_its_start() {
        for (keys, after) in [(["b/2", "b/1"], None), (["b/1", "b/1"], None), (["b/1", "b/2"], Some("b/1"))] {
            assert!(matches!(page(&keys, WHOLE, after), Ok(ListedPage::OutOfOrder)), "{keys:?}");
        }
        assert!(matches!(page(&["b/1", "b/2"], WHOLE, Some("b/0")), Ok(ListedPage::Ordered(_))));
    }

    #[test]
    fn listing_without_is_truncated_or_with_other_prefix_is_an_error() {
        assert!(page(&["b/1"], "", None).is_err());
        assert!(page(&["c/1"], WHOLE, None).is_err());
    }

    #[test]
    fn last_modified_is_parsed() {
        assert_eq!(parse_time("2009-10-12T17:50:30.000Z").map(Timestamp::millis), Some(1_255_369_830_000));
    }
}
