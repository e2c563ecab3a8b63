//! Which operations are offered and which query parameters each of them knows.
//!
//! An unknown parameter may ask for something else entirely (`?policy`, `?restore`), so a request
//! that carries one is never answered as if it were not there.

use super::refusal::Refusal;
use super::url_encoding::parameters;

const NONE: &[&str] = &[];
const TAGGED_OBJECT: &[&str] = &["tagging", "versionId"];
const PART: &[&str] = &["partNumber", "uploadId"];
const READ: &[&str] = &[
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "versionId",
];

const LIST: &[&str] = &[
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "list-type",
    "max-keys",
    "prefix",
    "start-after",
];
const LIST_UPLOADS: &[&str] =
    &["delimiter", "encoding-type", "key-marker", "max-uploads", "prefix", "upload-id-marker", "uploads"];

/// Every offered operation and the query parameters that it knows.
const OFFERED: &[(&str, &[&str])] = &[
    ("ListBuckets", &["bucket-region", "continuation-token", "max-buckets", "prefix"]),
    ("CreateBucket", NONE),
    ("DeleteBucket", NONE),
    ("HeadBucket", NONE),
    ("GetBucketLocation", &["location"]),
    ("GetBucketVersioning", &["versioning"]),
    ("GetBucketAcl", &["acl"]),
    ("PutBucketAcl", &["acl"]),
    ("GetBucketTagging", &["tagging"]),
    ("PutBucketTagging", &["tagging"]),
    ("DeleteBucketTagging", &["tagging"]),
    ("GetBucketLifecycleConfiguration", &["lifecycle"]),
    ("PutBucketLifecycleConfiguration", &["lifecycle"]),
    ("DeleteBucketLifecycle", &["lifecycle"]),
    ("PutObject", NONE),
    ("CopyObject", NONE),
    ("GetObject", READ),
    ("HeadObject", READ),
    ("DeleteObject", &["versionId"]),
    ("DeleteObjects", &["delete"]),
    ("GetObjectAcl", &["acl", "versionId"]),
    ("PutObjectAcl", &["acl", "versionId"]),
    ("GetObjectAttributes", &["attributes", "versionId"]),
    ("GetObjectTagging", TAGGED_OBJECT),
    ("PutObjectTagging", TAGGED_OBJECT),
    ("DeleteObjectTagging", TAGGED_OBJECT),
    ("ListObjects", &["delimiter", "encoding-type", "marker", "max-keys", "prefix"]),
    ("ListObjectsV2", LIST),
    ("CreateMultipartUpload", &["uploads"]),
    ("UploadPart", PART),
    ("UploadPartCopy", PART),
    ("CompleteMultipartUpload", &["uploadId"]),
    ("AbortMultipartUpload", &["uploadId"]),
    ("ListParts", &["max-parts", "part-number-marker", "uploadId"]),
    ("ListMultipartUploads", LIST_UPLOADS),
];

/// The name of an offered operation, for as long as the program runs.
pub fn offered(operation: &str) -> Option<&'static str> {
    OFFERED.iter().find(|(name, _)| *name == operation).map(|(name, _)| *name)
}

/// The names of all offered operations.
#[cfg(test)]
pub fn operations() -> impl Iterator<Item = &'static str> {
    OFFERED.iter().map(|(name, _)| *name)
}

/// Refuses operations that are not offered and parameters that the operation does not know.
pub fn check(operation: &str, query: Option<&str>) -> Result<(), Refusal> {
    let not_offered = || Refusal::because("NotImplemented", format!("{operation} is not implemented"));
    let (_, known) = OFFERED.iter().find(|(name, _)| *name == operation).ok_or_else(not_offered)?;
    let unknown = parameters(query.unwrap_or_default()).find(|(name, _)| !is_known(known, name));
    match unknown {
        Some((name, _)) => {
            Err(Refusal::because("NotImplemented", format!("The query parameter {name} is not implemented here")))
        }
        None => Ok(()),
    }
}

/// `x-amz-*` parameters are judged by [`super::query_headers`].
fn is_known(known: &[&str], name: &str) -> bool {
    let signing = name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"));
    signing || name == "x-id" || known.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn known_parameters_pass() {
        for (operation, query) in [
            ("GetObject", None),
            ("GetObject", Some("response-content-type=a%2Fb&partNumber=1&X-Amz-Signature=x&x-id=GetObject")),
            ("ListObjectsV2", Some("list-type=2&prefix=&encoding-type=url&fetch-owner=true")),
            ("PutObject", Some("x-id=PutObject")),
            ("UploadPart", Some("partNumber=1&uploadId=u")),
            ("CreateMultipartUpload", Some("uploads")),
        ] {
            assert!(check(operation, query).is_ok(), "{operation} {query:?}");
        }
    }

    #[test]
    fn unknown_parameters_are_not_ignored() {
        for (operation, query) in [
            ("GetObject", "torrents"),
            ("PutObject", "restore"),
            ("PutObject", "partNumber=1"),
            ("ListObjects", "versionz"),
            ("CreateBucket", "policy%20"),
            ("DeleteObject", "legal-hold"),
            ("GetObject", "%FF=1"),
        ] {
            assert_eq!(check(operation, Some(query)).unwrap_err().code, "NotImplemented", "{operation} {query}");
        }
    }

    #[test]
    fn operations_that_are_not_offered_say_so() {
        for operation in ["GetBucketPolicy", "PutBucketCors", "ListObjectVersions", "GetObjectTorrent"] {
            assert_eq!(check(operation, None).unwrap_err().status.as_u16(), 501, "{operation}");
        }
    }
}
