//! Listing, checked: keys ascend strictly by their bytes and lie where they were asked for.
//!
//! Some stores keep keys in folders and sort those by their bare names. That is found out before
//! the first page, and such a store is listed folder by folder.

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

/// The order in which a store lists its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// By the bytes of the whole key.
    Bytes,
    /// Folder by folder, each by its bare names.
    Folders,
}

impl S3 {
    pub(super) async fn list_objects(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let order = match self.order() {
            Some(order) => order,
            // It must be known before the first page: a listing that began in the wrong order
            // has left keys out before it shows.
            None => self.find_order().await?,
        };
        match order {
            Order::Bytes => self.list_flat(prefix, after, limit).await,
            Order::Folders => self.walk_objects(prefix, after, limit).await,
        }
    }

    async fn list_flat(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page, Error> {
        let own_too = prefix.starts_with(RESERVED_PREFIX);
        let mut after = after.map(str::to_owned);
        loop {
            let Listing::Ordered(mut page) = self.list_page(prefix, after.as_deref(), limit).await? else {
                self.set_order(Order::Folders);
                return Err(Error::Unknown("the listing is out of order: begin again".to_owned()));
            };
            let last = page.items.last().map(|item| item.key.clone());
            page.items.retain(|item| own_too || !item.key.starts_with(RESERVED_PREFIX));
            if !page.items.is_empty() || !page.truncated {
                return Ok(page);
            }
            // All that came was ours. An empty page would give the caller nowhere to go on from.
            after = Some(last.ok_or_else(|| Error::Unknown("an empty page promises more".to_owned()))?);
        }
    }

    /// The order in which the store lists a folder that holds `a/b` and `a-b`.
    pub(super) async fn order_in(&self, folder: &str) -> Result<Order, Error> {
        let order = match self.list_page(folder, None, PAGE_KEYS_MAX).await? {
            Listing::Ordered(page) if page.items.len() == 2 => Order::Bytes,
            Listing::Ordered(_) => return Err(Error::Unknown("the listing does not show what was written".to_owned())),
            Listing::OutOfOrder => Order::Folders,
        };
        self.set_order(order);
        Ok(order)
    }

    fn order(&self) -> Option<Order> {
        *self.order.lock()
    }

    pub(super) fn set_order(&self, order: Order) {
        *self.order.lock() = Some(order);
    }

    async fn list_page(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Listing, Error> {
        let max_keys = limit.clamp(1, PAGE_KEYS_MAX).to_string();
        let mut query =
            vec![("list-type", "2"), ("encoding-type", "url"), ("prefix", prefix), ("max-keys", max_keys.as_str())];
        if let Some(after) = after {
            query.push(("start-after", after));
        }
        let answer = self.transport.answer(Request::new(Method::GET, None, &query)).await;
        match answer.map_err(Error::from) {
            Ok(answer) => read_page(&Element::parse(&answer.body)?, prefix, after),
            Err(Error::NotFound) => Err(Error::Unknown("the listing was answered with a 404".to_owned())),
            Err(error) => Err(error),
        }
    }
}

/// A page of a listing, if it is one that can be trusted.
#[derive(Debug)]
enum Listing {
    Ordered(Page),
    OutOfOrder,
}

fn read_page(root: &Element, prefix: &str, after: Option<&str>) -> Result<Listing, Error> {
    let truncated = is_truncated(root)?;
    let decoder = Decoder::of(root);
    let mut items: Vec<Listed> = Vec::new();
    for entry in root.all("Contents") {
        let listed = read_entry(entry, decoder)?;
        if !listed.key.starts_with(prefix) {
            return Err(Error::Unknown(format!("the listing has {:?}, which was not asked for", listed.key)));
        }
        let previous = items.last().map(|item| item.key.as_str()).or(after);
        if previous.is_some_and(|previous| listed.key.as_str() <= previous) {
            return Ok(Listing::OutOfOrder);
        }
        items.push(listed);
    }
    Ok(Listing::Ordered(Page { items, truncated }))
}

/// Whether a listing says that more follows; one that does not say so is worth nothing.
pub(super) fn is_truncated(root: &Element) -> Result<bool, Error> {
    if root.name != "ListBucketResult" {
        return Err(Error::Unknown(format!("a listing was answered with {}", root.name)));
    }
    match root.child_text("IsTruncated") {
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        _ => Err(Error::Unknown("the listing does not say whether it is whole".to_owned())),
    }
}

pub(super) fn read_entry(entry: &Element, decoder: Decoder) -> Result<Listed, Error> {
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
    use super::{Listing, Timestamp, moment, read_page};
    use crate::Error;
    use crate::s3::xml::Element;

    fn page(keys: &[&str], truncated: &str, after: Option<&str>) -> Result<Listing, Error> {
        let contents: Vec<_> =
            keys.iter().map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>")).collect();
        let contents = contents.concat();
        let document =
            format!("<ListBucketResult><EncodingType>url</EncodingType>{truncated}{contents}</ListBucketResult>");
        read_page(&Element::parse(document.as_bytes()).expect("valid"), "b/", after)
    }

    const WHOLE: &str = "<IsTruncated>false</IsTruncated>";

    #[test]
    fn escaped_keys_read_back() {
        let Ok(Listing::Ordered(page)) = page(&["b/a%3D+%C3%A9%2B"], WHOLE, None) else { panic!("a page") };
        assert_eq!(page.items[0].key, "b/a= é+");
    }

    #[test]
    fn a_listing_out_of_order_is_noticed_at_its_start_as_well() {
        for (keys, after) in [(["b/2", "b/1"], None), (["b/1", "b/1"], None), (["b/1", "b/2"], Some("b/1"))] {
            assert!(matches!(page(&keys, WHOLE, after), Ok(Listing::OutOfOrder)), "{keys:?}");
        }
        assert!(matches!(page(&["b/1", "b/2"], WHOLE, Some("b/0")), Ok(Listing::Ordered(_))));
    }

    #[test]
    fn a_listing_of_something_else_is_worth_nothing() {
        assert!(page(&["b/1"], "", None).is_err());
        assert!(page(&["c/1"], WHOLE, None).is_err());
    }

    #[test]
    fn moments_are_read() {
        assert_eq!(moment("2009-10-12T17:50:30.000Z").map(Timestamp::millis), Some(1_255_369_830_000));
    }
}
