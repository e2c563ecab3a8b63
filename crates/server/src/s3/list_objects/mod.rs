//! ListObjects, both versions: what they share.

pub mod v1;
pub mod v2;

use s3o_model::checksum::Checksum;
use s3o_model::listing::{Entry, ListPage};
use s3o_model::object::ListedObject;
use s3s::dto::{CommonPrefix, ETag, Object, ObjectStorageClass};

use super::attributes::DEFAULT_STORAGE_CLASS;
use super::owner::owner;
use super::refusal::Refusal;
use super::url_encoding::NameEncoding;
use super::{checksums, times};

/// The most entries on one page.
const KEYS_MAX: i32 = 1000;

/// How many entries a page has: what was asked for, within bounds.
pub fn page_size(requested: Option<i32>, name: &str) -> Result<i32, Refusal> {
    match requested.unwrap_or(KEYS_MAX) {
        size if size < 0 => Err(Refusal::because("InvalidArgument", format!("Argument {name} must be at least 0"))),
        size => Ok(size.min(KEYS_MAX)),
    }
}

/// The names on a page, for choosing how to write them.
fn names(page: &ListPage<ListedObject>) -> impl Iterator<Item = &str> {
    page.entries.iter().map(|entry| match entry {
        Entry::Row(object) => object.key.as_str(),
        Entry::Prefix(prefix) => prefix.as_str(),
    })
}

/// The entries of a page as S3 answers them: objects apart from common prefixes.
fn entries(page: ListPage<ListedObject>, encoding: NameEncoding, owned: bool) -> (Vec<Object>, Vec<CommonPrefix>) {
    let (mut objects, mut prefixes) = (Vec::new(), Vec::new());
    for entry in page.entries {
        match entry {
            Entry::Row(listed) => objects.push(object(&listed, encoding, owned)),
            Entry::Prefix(prefix) => prefixes.push(CommonPrefix { prefix: Some(encoding.write(&prefix)) }),
        }
    }
    (objects, prefixes)
}

fn object(listed: &ListedObject, encoding: NameEncoding, owned: bool) -> Object {
    let class = listed.storage_class.clone().unwrap_or_else(|| DEFAULT_STORAGE_CLASS.to_owned());
    let algorithm = |checksum: &Checksum| vec![checksums::algorithm_name(checksum.algorithm)];
    Object {
        checksum_algorithm: listed.checksum.as_ref().map(algorithm),
        checksum_type: listed.checksum.as_ref().map(|checksum| checksums::type_of(checksum.coverage)),
        e_tag: Some(ETag::Strong(listed.etag.to_string())),
        key: Some(encoding.write(listed.key.as_str())),
        last_modified: Some(times::to_s3(listed.last_modified)),
        owner: owned.then(owner),
        restore_status: None,
        size: i64::try_from(listed.size_bytes).ok(),
        storage_class: Some(ObjectStorageClass::from(class)),
    }
}

#[cfg(test)]
mod tests {
    use super::{entries, names, page_size};
    use crate::s3::url_encoding::NameEncoding;
    use s3o_model::clock::Timestamp;
    use s3o_model::etag::ETag;
    use s3o_model::listing::{Entry, ListPage};
    use s3o_model::object::ListedObject;

    #[test]
    fn page_sizes_are_bounded() {
        assert_eq!(page_size(None, "maxKeys").unwrap(), 1000);
        assert_eq!(page_size(Some(5000), "maxKeys").unwrap(), 1000);
        assert_eq!(page_size(Some(0), "maxKeys").unwrap(), 0);
        assert_eq!(page_size(Some(-1), "maxKeys").unwrap_err().code, "InvalidArgument");
    }

    #[test]
    fn pages_are_split_and_encoded() {
        let listed = ListedObject {
            key: "a b".parse().unwrap(),
            size_bytes: 3,
            etag: ETag::from_text("e"),
            last_modified: Timestamp::from_millis(0),
            storage_class: None,
            checksum: None,
        };
        let page = ListPage { entries: vec![Entry::Row(listed), Entry::Prefix("p q/".into())], next_after: None };
        assert_eq!(names(&page).collect::<Vec<_>>(), ["a b", "p q/"]);
        let (objects, prefixes) = entries(page, NameEncoding::Url, true);
        assert_eq!(objects[0].key.as_deref(), Some("a%20b"));
        assert_eq!(objects[0].storage_class.as_ref().unwrap().as_str(), "STANDARD");
        assert!(objects[0].owner.is_some());
        assert_eq!(prefixes[0].prefix.as_deref(), Some("p%20q/"));
    }
}
